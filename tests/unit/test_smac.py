"""StarCraft II through SMAC's interface, against a stand-in that has the real one's manners."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from commands import rows

import tianji
from tianji.config.loader import resolve
from tianji.config.reader import parse
from tianji.core.errors import TianJiError
from tianji.envs import make
from tianji.job.preflight import try_out

N, LIMIT = 2, 4  # allies, steps
MAPS = {"3m": 60, "8m": 120, "2s3z": 120}


class SC2LaunchError(Exception):
    """As pysc2's."""


class Fake:
    """`StarCraft2Env`: lists, Python scalars, asserted orders, one unit that dies, one enemy.

    Order 5 wins, order 4 kills ally 1, order 3 breaks the protocol.
    """

    made = ()

    def __init__(self, map_name="8m", difficulty="7", seed=None, continuing_episode=False, step=8):
        MAPS[map_name]
        self.map_name, self.difficulty, self.seed, self.step_mul = map_name, difficulty, seed, step
        self.continuing, self.log = continuing_episode, []
        self.alive, self.launched = [True] * N, False
        Fake.made = (*Fake.made, self)

    def get_env_info(self):
        sizes = {"state_shape": 3, "obs_shape": 4, "n_actions": 6, "n_agents": N}
        return {**sizes, "episode_limit": LIMIT}

    def reset(self):
        self.launched, self.t, self.alive = True, 0, [True] * N
        self.log.append("reset")
        return self.get_obs(), self.get_state()

    def step(self, actions):
        actions = [int(a) for a in actions]
        for allowed, action in zip(self.get_avail_actions(), actions, strict=True):
            assert allowed[action]
        self.t += 1
        if 3 in actions:
            self.reset()
            return 0, True, {}
        if 4 in actions:
            self.alive[1] = False
        won = 5 in actions
        info = {"battle_won": won, "dead_allies": 0, "dead_enemies": 0}
        over = won or self.t >= LIMIT
        if over and not won and self.continuing:
            info["episode_limit"] = True
        return 2.5, over, info

    def get_obs(self):
        return [np.full(4, self.t + i, np.float64) * a for i, a in enumerate(self.alive)]

    def get_state(self):
        return np.full(3, self.t, np.float64)

    def get_avail_actions(self):
        return [[0, 1, 1, 1, 1, 1] if a else [1, 0, 0, 0, 0, 0] for a in self.alive]

    def close(self):
        self.log.append("close")


class Second(Fake):
    """SMACv2's wrapper: its reset may return nothing."""

    def __init__(self, capability_config, **kwargs):
        super().__init__(**kwargs)
        self.capability_config = capability_config

    def reset(self):
        super().reset()


class Absent(Fake):
    def reset(self):
        raise SC2LaunchError("no StarCraft II in /home/me/StarCraftII")


def install(monkeypatch, cls=Fake, package="smac.env", name="StarCraft2Env"):
    Fake.made = ()
    parts = package.split(".")
    for end in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(parts[end - 1]))
    setattr(sys.modules[package], name, cls)
    maps = ModuleType("smac_maps")
    maps.get_smac_map_registry = lambda: MAPS
    for module in ("smac.env.starcraft2", "smac.env.starcraft2.maps"):
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
    monkeypatch.setitem(sys.modules, "smac.env.starcraft2.maps.smac_maps", maps)


def smac(n_envs=1, map_name="3m", **kwargs):
    kwargs["map_name"] = map_name
    wanted = SimpleNamespace(
        type="StarCraft2Env", gym_name=None, vectorization="auto", kwargs=kwargs, render=False
    )
    return make(wanted, n_envs, ".")


def orders(*actions):
    return np.array([actions], np.int64)


@pytest.fixture(autouse=True)
def game(monkeypatch):
    install(monkeypatch)


def test_the_spec_is_what_the_game_says():
    spec = smac(3, difficulty=5).spec
    assert {f.name: str(f) for f in spec.observations} == {
        "obs": "float32[2, 4]",
        "mask": "bool[2, 6]",
        "state": "float32[3]",
        "alive": "bool[2]",
    }
    assert (spec.n_envs, spec.n_actions, spec.max_episode_steps) == (3, 6, LIMIT)
    assert not spec.reward_per_agent and spec.reward.shape == ()
    assert (Fake.made[0].map_name, Fake.made[0].difficulty) == ("3m", "5")
    assert not any(each.launched for each in Fake.made), "the program starts with the first episode"


def test_seeds_make_the_games_anew():
    env = smac(2)
    env.reset(seed=7)
    assert [each.seed for each in Fake.made] == [None, None, 7, 8]
    assert [each.log for each in Fake.made] == [["close"], ["close"], ["reset"], ["reset"]]
    env.reset()
    assert len(Fake.made) == 4


def test_the_dead_can_do_nothing_but_that_they_must():
    env = smac()
    assert env.reset()["alive"].tolist() == [[True, True]]
    step = env.step(orders(1, 4))
    assert step.obs["alive"].tolist() == [[True, False]]
    assert (
        step.obs["mask"][0, 1].tolist() == [True] + [False] * 5 and not step.obs["obs"][0, 1].any()
    )
    assert step.reward.tolist() == [2.5] and not step.won[0]
    with pytest.raises(TianJiError, match=r"'ally_1'.*possible are \[0\]"):
        env.step(orders(1, 1))
    with pytest.raises(TianJiError, match="'ally_0'"):
        env.step(orders(0, 0))
    env.step(orders(1, 0))


def test_a_won_battle_is_told():
    env = smac()
    env.reset()
    step = env.step(orders(1, 5))
    assert (step.won.tolist(), step.terminated.tolist()) == ([True], [True])
    step = env.step(orders(0, 0))
    assert step.first[0] and not step.won[0] and not step.valid[0]


@pytest.mark.parametrize("terminal", [True, False])
def test_whether_the_time_limit_ends_is_a_setting(terminal):
    env = smac(time_limit_terminal=terminal)
    env.reset()
    steps = [env.step(orders(1, 1)) for _ in range(LIMIT - 1)]
    assert not (steps[-1].terminated[0] or steps[-1].truncated[0])
    last = env.step(orders(1, 1))
    assert (last.terminated[0], last.truncated[0], last.won[0]) == (terminal, not terminal, False)


def test_an_episode_that_a_protocol_error_ended_is_lost_and_counted():
    env = smac()
    env.reset()
    env.step(orders(1, 1))
    step = env.step(orders(3, 1))
    assert (step.valid[0], step.first[0], step.terminated[0], step.truncated[0]) == (
        False,
        True,
        False,
        False,
    )
    assert env.n_lost == 1 and step.reward[0] == 0 and not step.won[0]
    assert step.obs["state"].tolist() == [[0, 0, 0]]
    assert env.step(orders(1, 1)).valid[0]


def test_the_second_version_may_return_nothing_on_reset(monkeypatch):
    install(monkeypatch, Second, "smacv2.env.starcraft2.wrapper", "StarCraftCapabilityEnvWrapper")
    env = smac(capability_config={"n_units": 2}, step=4)
    assert env.reset()["state"].shape == (1, 3)
    assert (Fake.made[0].capability_config, Fake.made[0].step_mul) == ({"n_units": 2}, 4)


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"map_name": "3mm"}, "'3m'"),
        ({"seed": 3}, "leave seed out"),
        ({"continuing_episode": True}, "time_limit_terminal"),
        ({"dificulty": "7"}, "dificulty"),
    ],
)
def test_wrong_keys_are_refused(kwargs, words):
    with pytest.raises(TianJiError, match=words):
        smac(**kwargs)


def test_a_trial_step_chooses_among_what_is_possible():
    config = resolve(
        parse("environment = dict(type='StarCraft2Env', map_name='3m')", "a"), (), "a", "."
    )
    with pytest.raises(TianJiError, match="axis of agents"):  # after the step, of PPO
        try_out(config)


def test_errors_say_how_to_install_the_game(monkeypatch):
    install(monkeypatch, Absent)
    with pytest.raises(TianJiError, match="SC2PATH"):
        smac().reset()
    monkeypatch.setitem(sys.modules, "smac.env", ModuleType("smac.env"))
    with pytest.raises(TianJiError, match="another program"):
        smac()
    monkeypatch.setitem(sys.modules, "smac.env", None)
    with pytest.raises(TianJiError, match="pip install git"):
        smac()


RELEASE = """
environment = dict(type='StarCraft2Env', map_name='3m', difficulty='7', render=False, seed=None)
exp = dict(train_steps=100_000, max_step=4, save_freq=100, eval_times=4, stop_win_ratio=0.2)
hyp = dict(LR=5e-4, GAMMA=0.99, EPSILON=1, max_decay_step=2000, TARGET_REPLACE_ITER=64,
           warmup_size=10, buffer_size=50, batch_size=4, double_q=False, clip_grad_norm=10)
model = dict(type='GRU', c1=42, c2=9)
mixer_model = dict(type='MixerNet', agent_num=3, state_shape=48)
embryo = dict(type='MixerHead', model=model, mixer_model=mixer_model, hyp=hyp)
agent = dict(type='QMIX', embryo=embryo)
hooks = [dict(type='QmixHook'), dict(type='TensorboardHook')]
"""


def test_a_file_of_the_release_trains_until_enough_battles_are_won(tmp_path, capsys):
    file = tmp_path / "qmix_3m.py"
    file.write_text(RELEASE)
    report = tianji.train(file, engine="local", run_dir=tmp_path / "run", seed=1)
    assert report.solved
    assert report.win_ratio >= 0.2
    assert report.summary["updates"] > 0
    lost = report.summary["lost_episodes"]
    assert lost > 0 and any("actor-0.0" in words for words in report.summary["warnings"])
    assert rows(tmp_path / "run")[-1]["faults/lost_episodes"] == lost
    assert "qmix_3m.py:6: model.c1 has no effect here" in capsys.readouterr().err
    Fake.made = ()
    result = tianji.evaluate(tianji.load(tmp_path / "run"), 8, seed=2)
    assert len(result.won) == 8
    assert result.win_interval[0] <= result.win_ratio <= result.win_interval[1]
