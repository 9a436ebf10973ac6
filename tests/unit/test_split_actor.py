"""An actor in two halves makes the rows that one whole would have made."""

from dataclasses import replace

import numpy as np
import pytest
from commands import ROOT
from fields import layout_of, spec_of
from test_roles import ACTION, OBS, WEIGHTS

from tianji.config import load
from tianji.core.channel import ChannelSpec, Delivery
from tianji.core.env import Step
from tianji.core.tracer import Tracer
from tianji.job.preflight import try_out
from tianji.roles import Actor
from tianji.roles.episodes import EPISODE_SCHEMA
from tianji.roles.split_actor import EnvHalves, PolicyHalves, SplitActor
from tianji.roles.trigger import WhenFull
from tianji.transports.local import LocalTransport

LENGTH = 4


class Counters:
    """Each environment shows its number and adds its action; it ends when that passes 20."""

    def __init__(self, n_envs, diary, name=""):
        self.spec, self.diary, self.name = spec_of(OBS, ACTION, 9, n_envs=n_envs), diary, name

    def reset(self, seed=None):
        self.at, self.over = seed + np.arange(self.spec.n_envs), np.zeros(self.spec.n_envs, bool)
        return self.seen()

    def seen(self):
        return {"obs": self.at[:, None].astype(np.float32)}

    def begin(self, action):
        self.diary.append(f"begin {self.name}")
        self.action = action.copy()

    def finish(self):
        self.diary.append(f"finish {self.name}")
        reset = self.over
        self.at = np.where(reset, 0, self.at + self.action)
        self.over = ~reset & (self.at > 20)
        reward = np.where(reset, 0, self.action).astype(np.float32)
        return Step(self.seen(), reward, self.over, np.zeros_like(reset), ~reset, reset)

    def step(self, action):
        self.begin(action)
        return self.finish()

    def close(self):
        self.diary.append(f"close {self.name}")


class Since:
    """Acts by how long it has seen each environment's episode: it must remember the right ones."""

    def __init__(self, diary, name=""):
        self.diary, self.name, self.seen = diary, name, 0

    def load(self, weights, version):
        self.diary.append(f"load {self.name}")

    def act(self, obs, first, explore=True):
        self.diary.append(f"act {self.name}")
        self.seen = np.where(first, 0, self.seen + 1)
        return {"action": self.seen + 1}

    def state(self):
        return {"seen": self.seen}

    def restore(self, state):
        self.seen = state["seen"]


def channels():
    trajectory = layout_of(OBS, ACTION, (), LENGTH, 4)
    transport = LocalTransport(
        [
            ChannelSpec("weights", "learner", ("actor",), WEIGHTS, Delivery.LATEST),
            ChannelSpec("trajectories", "actor", ("buffer",), trajectory, depth=2),
            ChannelSpec("episodes", "actor", ("launcher",), EPISODE_SCHEMA, depth=4),
        ]
    )
    transport.outbox("weights").push({"weights": np.zeros(3, np.float32)}, 0)
    ends = (transport.inbox("weights"), transport.outbox("trajectories"))
    return transport.inbox("trajectories"), (*ends, transport.outbox("episodes"))


def made(actor, inbox, n):
    """The next `n` trajectories."""
    found = []
    for _ in range(1_000):
        actor.step()
        if (message := inbox.take()) is not None:
            found.append({name: array.copy() for name, array in message.arrays.items()})
        if len(found) == n:
            return found
    raise AssertionError("too few trajectories")


def halves(diary):
    envs = EnvHalves([Counters(2, diary, name) for name in "AB"])
    return envs, PolicyHalves([Since(diary, name) for name in "AB"])


def test_the_rows_are_those_of_one_whole():
    inbox, ends = channels()
    whole = Actor("actor", Counters(4, []), Since([]), *ends, WhenFull(LENGTH), LENGTH, seed=5)
    expected = made(whole, inbox, 6)
    inbox, ends = channels()
    split = SplitActor("actor", *halves([]), *ends, WhenFull(LENGTH), LENGTH, seed=5)
    found = made(split, inbox, 6)
    for one, other in zip(found, expected, strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], name)
    assert split.env.spec == replace(whole.env.spec)
    assert list(split.counts) == list(whole.counts)


def test_one_half_moves_while_the_other_is_acted_in():
    diary = []
    inbox, ends = channels()
    split = SplitActor("actor", *halves(diary), *ends, WhenFull(LENGTH), LENGTH, seed=5)
    made(split, inbox, 1)
    words = [word for word in diary if not word.startswith("load")]
    assert words[:6] == ["act A", "begin A", "act B", "begin B", "finish A", "act A"]
    assert words.count("act A") == words.count("act B") == LENGTH
    split.close()
    assert diary[-2:] == ["close A", "close B"]


def test_both_policies_are_saved():
    _, policy = halves([])
    policy.act({"obs": np.zeros((4, 1))}, np.array([True, True, True, False]))
    _, other = halves([])
    other.restore(policy.state())
    assert [list(half.seen) for half in other.halves] == [[0, 0], [0, 1]]


def test_its_trace_has_a_row_for_every_half_and_none_goes_backwards():
    inbox, ends = channels()
    split = SplitActor("actor", *halves([]), *ends, WhenFull(LENGTH), LENGTH, seed=5)
    split.tracer = Diary()
    made(split, inbox, 2)
    rows = [words for words in split.tracer.words if words != "other"]
    assert len(rows) % 3 == 0 and len(rows) >= 3 * 2 * 2 * LENGTH
    assert rows == ["begin", "decided", "acted"] * (len(rows) // 3)


class Diary(Tracer):
    """Keeps what an actor says of its steps."""

    def __init__(self):
        self.words, self.begun = [], 0

    def begin(self):
        self.begun = len(self.words)
        self.words.append("begin")

    def decided(self):
        self.words.append("decided")

    def acted(self):
        self.words.append("acted")

    def sent(self, what, version):
        del self.words[self.begun :]

    def received(self, what, message):
        del self.words[self.begun :]


@pytest.mark.parametrize("where", ["begin", "finish"])
def test_a_half_that_raises_is_made_anew_and_the_other_goes_on(where):
    diary, anew, calls = [], [], []
    envs, policy = halves(diary)
    whole = getattr(envs.halves[1], where)

    def breaks(*words):
        calls.append(1)
        if len(calls) == 2:
            raise OSError("the console is gone")
        return whole(*words)

    def make():
        anew.append(Counters(2, diary, "C"))
        return anew[-1]

    setattr(envs.halves[1], where, breaks)
    inbox, ends = channels()
    more = dict(seed=0, make_env=make, restarts=1)
    actor = SplitActor("actor", envs, policy, *ends, WhenFull(LENGTH), LENGTH, **more)
    (rows,) = made(actor, inbox, 1)
    assert rows["valid"][:3].tolist() == [[1] * 4, [1, 1, 0, 0], [1] * 4]
    assert envs.halves[1] is anew[0] and "close B" in diary
    actor.close()
    assert diary[-2:] == ["close A", "close C"]


@pytest.mark.parametrize(("halves", "n"), [(True, 2), (False, 1)])
def test_a_config_may_ask_for_all_at_once(halves, n):
    pytest.importorskip("ale_py")
    overrides = [f"actor_cfg.halves={halves}", "actor_cfg.envs=2"]
    assert try_out(load(ROOT / "configs" / "atari" / "pong_laptop.py", overrides)).n_halves == n
