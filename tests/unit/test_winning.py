"""Won games, from the environment's step to whoever watches, ends, reports or evaluates a run."""

from __future__ import annotations

import dataclasses
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from commands import TASKS

import tianji
from tianji import envs
from tianji.config import load
from tianji.config.loader import resolve
from tianji.config.reader import parse
from tianji.core.env import Step
from tianji.core.errors import TianJiError
from tianji.core.stats import wilson
from tianji.job.factory import make_env
from tianji.job.job import prepare
from tianji.job.preflight import try_out
from tianji.job.wiring import channels_of
from tianji.observe.panel import Scene, line
from tianji.observe.report.run_reader import RunReader
from tianji.observe.watch import Watch
from tianji.roles.episodes import Ended, Episodes
from tianji.roles.evaluation import Evaluation, Games
from tianji.tools.scores import Score, describe, table
from tianji.transports.local import LocalTransport

WALK = "environment = dict(type='walk:Walk')\n"


class Winning:
    """The walk, in which reaching an end after an even number of steps is a victory."""

    def __init__(self, env):
        self.env, self.spec = env, env.spec
        self.reset, self.close = env.reset, env.close
        self.steps = np.zeros(env.spec.n_envs, int)

    def step(self, action):
        step = self.env.step(action)
        self.steps += step.valid
        won = step.terminated & (self.steps % 2 == 0)
        self.steps[step.terminated | step.truncated] = 0
        return dataclasses.replace(step, won=won)


@pytest.fixture
def winnable(monkeypatch):
    """Makes all environments of this process such as can be won."""
    make = envs.make
    monkeypatch.setattr(envs, "make", lambda *args: Winning(make(*args)))


def step_of(won, ended=True):
    def flag(value):
        return np.array([value])

    reward = np.ones(1, np.float32)
    return Step({}, reward, flag(ended), flag(False), flag(True), flag(False), won=won)


def test_an_episode_says_whether_it_was_won():
    episodes = Episodes(1, clock=lambda: 0.0)
    for won in (None, np.array([True]), np.array([False])):
        episodes.add(step_of(np.array([False]) if won is not None else None, ended=False))
        episodes.add(step_of(won))
    first, second, third = (each.won for each in episodes.ended)
    assert math.isnan(first)
    assert (second, third) == (1.0, 0.0)


@pytest.mark.parametrize(("n_won", "n"), [(0, 20), (17, 20), (20, 20)])
def test_wilsons_interval_holds_the_share_and_has_a_width(n_won, n):
    low, high = wilson(n_won, n)
    assert 0 <= low <= n_won / n <= high <= 1
    assert high - low > 0.1


def test_wilsons_interval_is_that_of_the_books():
    low, high = wilson(17, 20)
    assert (low, high) == pytest.approx((0.6396, 0.9476), abs=1e-4)


# ----------------------------------------------------------------------------------------- watching


def watched(*overrides):
    config = load(TASKS / "walk_ppo.py", ["actor_cfg.num=1", *overrides])
    job = prepare(config, make_env(config).spec)
    transport = LocalTransport(channels_of(job))
    return Watch(job, transport), transport.outbox("episodes actor-0.0"), job


def push(outbox, won, returned=1.0):
    for some in np.array_split(np.asarray(won, float), 2):
        slot = outbox.slot()
        for name in Ended._fields:
            slot[name][:] = 0
        slot["n"][...] = n = len(some)
        slot["won"][:n], slot["returned"][:n], slot["ended_at"][:n] = some, returned, 7.0
        outbox.commit(0)


@pytest.mark.parametrize(("n_won", "solved"), [(89, False), (90, True)])
@pytest.mark.parametrize(
    "key", ["exp.stop_win_ratio", "learner_cfg.exit_val.win_ratio", "global_cfg.exit_val.win_ratio"]
)
def test_a_run_ends_when_enough_of_a_hundred_games_are_won(key, n_won, solved):
    watch, outbox, _ = watched(f"{key}=0.9")
    push(outbox, [1] * (n_won - 10) + [0] * (100 - n_won))
    assert watch.poll().solved_at is None  # too few games, whatever they say
    push(outbox, [1] * 10)
    progress = watch.poll()
    assert progress.win_ratio == n_won / 100
    assert (progress.solved_at is not None) == solved


def test_the_return_still_ends_a_run_beside_the_won_games():
    watch, outbox, _ = watched("exp.stop_win_ratio=0.9", "exp.stop_return=5")
    push(outbox, [0] * 100, returned=6.0)
    assert watch.poll().solved_at == 7.0


def test_where_nobody_can_win_there_is_no_share():
    watch, outbox, job = watched()
    push(outbox, [math.nan] * 20)
    progress = watch.poll()
    assert progress.win_ratio is None
    assert "won" not in line(Scene(job, "local", progress))


def test_a_resumed_run_remembers_which_games_were_won():
    watch, outbox, _ = watched()
    push(outbox, [1, 1, 1, 0, math.nan])
    watch.poll()
    other, _, _ = watched()
    other.restore(json.loads(json.dumps(watch.state(), allow_nan=False)))
    assert other.progress.win_ratio == 0.75
    assert len(other.progress.won) == 5


def test_a_line_shows_the_share_its_target_and_that_of_the_evaluation():
    watch, outbox, job = watched("exp.stop_win_ratio=0.9")
    push(outbox, [1, 1, 1, 0])
    scene = Scene(job, "local", watch.poll(), evaluated=(3.0, 50), evaluated_won=0.5)
    text = line(scene)
    assert "won 75 % / 90 %" in text
    assert "evaluation 3, won 50 %" in text


# ------------------------------------------------------------------------------------ configuration


def config(text):
    return resolve(parse(text, "a.py"), (), "a", str(TASKS))


def test_of_two_shares_that_differ_the_plain_key_counts():
    exits = "learner_cfg=dict(exit_val=dict(win_ratio=0.8))"
    found = config(WALK + f"exp = dict(stop_win_ratio=0.9)\nparallel_parameters = dict({exits})")
    assert found.stop_win_ratio == 0.9
    (notice,) = found.notices
    assert notice.startswith("a.py:3: exit_val.win_ratio has no effect here: ")
    assert "0.9" in notice


@pytest.mark.parametrize("value", ["0", "1.2", "-1"])
def test_a_share_is_a_share(value):
    with pytest.raises(TianJiError, match="stop_win_ratio"):
        config(WALK + f"exp = dict(stop_win_ratio={value})")


def test_a_share_of_won_games_is_refused_where_nobody_can_win():
    text = WALK + "exp = dict(stop_win_ratio=0.9, max_step=12)\nagent = dict(type='PPO')"
    with pytest.raises(TianJiError, match=r"exp.stop_win_ratio=0.9: nobody wins"):
        try_out(config(text))


# -------------------------------------------------------------------------------------- a whole run


def test_a_whole_run_ends_by_won_games_and_tells_of_them(winnable, tmp_path):
    report = tianji.train(
        TASKS / "walk_ppo.py",
        engine="local",
        run_dir=tmp_path / "run",
        quiet=True,
        exp={"train_steps": 60_000, "stop_win_ratio": 0.3, "stop_return": 1e9},
    )
    summary = report.summary
    assert report.solved
    assert 0.3 <= report.win_ratio == summary["win_ratio_100"] <= 1
    assert summary["stop_win_ratio"] == 0.3
    assert "(target won 30 %)" in str(report)
    assert report.metrics()[-1]["rollout/win_ratio"] == pytest.approx(report.win_ratio, rel=1e-3)
    reader = RunReader(tmp_path / "run")
    reader.refresh()
    data = reader.document()
    assert data["numbers"]["win_ratio_100"] == summary["win_ratio_100"]
    assert data["curves"]["win_ratio"][-1] == pytest.approx(report.win_ratio, rel=1e-3)


# --------------------------------------------------------------------------------------- evaluation


def test_games_say_which_of_them_were_won(winnable):
    found = load(TASKS / "walk_ppo.py")
    env = envs.make(found.environment, 4, found.folder, 12)
    policy = SimpleNamespace(act=lambda obs, first, explore: {"action": np.ones(4, int)})
    games = Games(env, policy, 10)
    games.reset(3)
    while not games.step():
        pass
    ended = games.lengths < 12  # terminated
    assert games.won.tolist() == (ended & (games.lengths % 2 == 0)).tolist()
    assert 0 < games.won.mean() < 1


def scored(tmp_path, won):
    evaluation = Evaluation((1.0,) * 20, (10,) * 20, version=7, seed=0, won=won)
    return Score(tmp_path, "final", 1000, evaluation, seconds=0.5)


def test_an_evaluation_tells_the_share_with_its_interval(tmp_path):
    score = scored(tmp_path, (1.0,) * 17 + (0.0,) * 3)
    assert "85.0 % (17 of 20), 95 % interval 64.0 to 94.8 %" in describe(score)
    row = json.loads(json.dumps(score.row))
    assert (row["win_ratio"], row["won"].count(1.0)) == (0.85, 17)
    assert (row["win_low"], row["win_high"]) == pytest.approx((0.6396, 0.9476), abs=1e-4)
    head, line = table([score]).split("\n")
    assert "won" in head.split() and "85.0 %" in line


def test_without_victories_nothing_is_said_of_them(tmp_path):
    score = scored(tmp_path, None)
    assert "won" not in describe(score) + table([score])
    assert (score.row["win_ratio"], score.row["won"]) == (None, None)
