"""Whole configs: the paper's names, those of its release, and overrides from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tianji.algorithms.dqn
import tianji.algorithms.maddpg
import tianji.algorithms.ppo
import tianji.algorithms.sac
import tianji.algorithms.td3
from tianji.config import Config, bind, from_json, load
from tianji.config.builtin_algorithms import ALGORITHMS
from tianji.config.loader import resolve
from tianji.config.reader import parse
from tianji.core.errors import TianJiError

CONFIGS = Path(__file__).parents[2] / "configs"
HYPS = {
    "DQN": tianji.algorithms.dqn.DQN.Hyp,
    "PPO": tianji.algorithms.ppo.PPO.Hyp,
    "SAC": tianji.algorithms.sac.SACHyp,
    "TD3": tianji.algorithms.td3.TD3Hyp,
}
ENVIRONMENT = "environment = dict(gym_name='CartPole-v1')\n"

PARALLEL = """
parallel_parameters = dict(
    global_cfg=dict(use_comm_parallel=True, use_group_parallel=False, group_num=1, save_freq=100,
                    exit_val=dict(fusion_step=10)),
    learner_cfg=dict(num=1, cores=2, send_interval=4, send_root_interval=100, finish_reward=400,
                     exit_val=dict(learn_step=1e5, reward=450, win_ratio=0.9),
                     eval=True, eval_val=dict(episodes=5)),
    actor_cfg=dict(num=2, send_size=32, cores=1),
    buffer_cfg=dict(
        global_buffer=dict(type='StepBuffer', max_size=2000, step_limit=1, episode_limit=500),
        send_size=8, cores=1))
exp = dict(train_steps=20000, episodes=300, max_step=200, save_freq=10, eval_step=50, eval_times=3)
"""

DQN = (
    PARALLEL
    + """
hyp = dict(LR=1e-3, GAMMA=0.9, EPSILON=0.1, TARGET_REPLACE_ITER=50, warmup_size=64,
           warmup_full_random=True, buffer_size=2000, batch_size=64, max_decay_step=1000,
           double_q=True, clip_grad_norm=10)
model = dict(type='MLP', c1=4, c2=2, act='relu')
embryo = dict(type='DQNHead', model=model, hyp=hyp)
agent = dict(type='DQN', embryo=embryo, alg_type='DQN', agent_num=1)
environment = dict(type='GymEnv', gym_name='CartPole-v1', render=False, seed=3,
                   wrappers=[dict(type='MonitorEnv', allow_early_resets=True)])
hooks = [dict(type='LogHook', interval=10)]
"""
)

PPO = (
    PARALLEL
    + """
state_dim = 4
hyp = dict(lr=3e-4, clip_param=0.2, gamma=0.99, gae_lambda=0.95, update_step=10, batch_size=4,
           step_len=128, warmup_size=4, buffer_size=4)
model = dict(type='MLP', state_dim=state_dim, act_dim=2)
embryo = dict(type='PPOHead', model=model, hyp=hyp)
agent = dict(type='PPO', embryo=embryo)
environment = dict(type='GymEnv', gym_name='CartPole-v1')
"""
)

QMIX = (
    PARALLEL
    + """
hyp = dict(LR=5e-4, GAMMA=0.99, EPSILON=0.05, TARGET_REPLACE_ITER=200, warmup_size=32,
           buffer_size=5000, batch_size=32, max_decay_step=50000, clip_grad_norm=10)
model = dict(type='RNN', input_shape=30, n_actions=9)
mixer_model = dict(type='QMixer', state_shape=48, n_agents=3)
embryo = dict(type='MixerHead', model=model, mixer_model=mixer_model, hyp=hyp)
agent = dict(type='QMIX', embryo=embryo, alg_type='QMIX', agent_num=3)
environment = dict(type='StarCraft2Env', map_name='3m', difficulty='7', seed=1)
"""
)

MADDPG = (
    PARALLEL
    + """
hyp = dict(actor_lr=1e-2, critic_lr=1e-2, gamma=0.95, tau=0.01, batch_size=1024, warmup_size=1024,
           buffer_size=100000, epsilon=0.1, target_replace_iter=100)
embryo = dict(type='MADDPGHead', hyp=hyp)
agent = dict(type='MADDPG', embryo=embryo, agent_num=3)
environment = dict(type='MultiagentParticleEnv', scenario_name='simple_spread')
"""
)


def config(text: str, *overrides: str) -> Config:
    return resolve(parse(text, "a.py"), overrides, "a", "/folder")


def refusal(text: str, *overrides: str) -> str:
    with pytest.raises(TianJiError) as caught:
        config(text, *overrides)
    return str(caught.value)


OWN = " or your own as 'module:Class'"
AGENTS = ", ".join(map(repr, ALGORITHMS)) + OWN
EMBRYOS = ["MixerHead" if name == "QMIX" else f"{name}Head" for name in ALGORITHMS]
HEADS = ", ".join(map(repr, EMBRYOS)) + ", 'DQNPrioritiesHead'" + OWN


def test_figure_7_loads_as_printed() -> None:
    figure7 = load(CONFIGS / "figure7.py")
    assert (figure7.name, figure7.folder) == ("figure7", str(CONFIGS))
    assert figure7.environment.gym_name == "CartPole-v1"
    assert figure7.exp.max_step == 500
    assert figure7.agent.type == "DQN"
    assert (figure7.model.c1, figure7.model.c2, figure7.model.dueling) == (4, 2, True)
    assert figure7.hyp["TARGET_REPLACE_ITER"] == 100
    assert figure7.parallel.learner_cfg.cores == 1
    assert len(figure7.notices) == 1
    assert figure7.notices[0].endswith(
        "figure7.py:6: buffer_cfg.send_size has no effect here: "
        "the buffer hands batches over one by one"
    )


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.py")), ids=lambda path: path.stem)
def test_every_preset_loads_and_comes_back_from_json(path: Path) -> None:
    loaded = load(path)
    assert from_json(json.loads(json.dumps(loaded.to_json()))) == loaded
    if path.stem != "figure7":
        assert loaded.notices == ()
        own = {"pendulum": -200, "mountaincar": 90}
        assert loaded.stop_return == own.get(path.stem.split("_")[0], 475)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.py")), ids=lambda path: path.stem)
def test_the_algorithm_of_every_preset_knows_its_keys(path: Path) -> None:
    loaded = load(path)
    notices: list[str] = []
    bind(HYPS[loaded.agent.type], loaded.hyp, "hyp", notices)
    assert notices == []


@pytest.mark.parametrize("text", [DQN, PPO], ids=["DQN", "PPO"])
def test_the_algorithms_know_the_keys_of_the_release(text: str) -> None:
    loaded = config(text)
    bind(HYPS[loaded.agent.type], loaded.hyp)


def test_the_keys_of_the_release_load_for_dqn_with_notices() -> None:
    dqn = config(DQN)
    assert (dqn.stop_return, dqn.stop_win_ratio) == (400, 0.9)
    assert dqn.max_updates == 100_000
    assert (dqn.save_freq, dqn.exp.eval_step, dqn.exp.eval_times) == (10, 50 * 200, 3)
    assert dqn.environment.wrappers[0].kwargs == {"allow_early_resets": True}
    short = [notice.split(" has no effect")[0].split(" is read as")[0] for notice in dqn.notices]
    assert {notice.split(": ")[1] for notice in short} == {
        "hooks",
        "exp.eval_step 50",
        "learner_cfg.send_root_interval",
        "agent.alg_type",
        "agent.agent_num",
        "wrappers.type 'MonitorEnv'",
        "exit_val.fusion_step",
        "exit_val.reward",
        "learner_cfg.eval",
        "learner_cfg.eval_val",
        "global_buffer.type",
        "global_buffer.max_size",
        "global_buffer.step_limit",
        "global_buffer.episode_limit",
        "buffer_cfg.send_size",
    }
    assert "a.py:11: buffer_cfg.send_size has no effect here: " in "\n".join(dqn.notices)
    assert all("\n" not in notice for notice in dqn.notices)


def test_the_keys_of_the_release_load_for_ppo() -> None:
    ppo = config(PPO)
    assert (ppo.model.c1, ppo.model.c2) == (4, 2)
    assert ppo.hyp["step_len"] == 128


def test_the_keys_of_the_release_load_for_maddpg() -> None:
    maddpg = config(MADDPG)
    notices: list[str] = []
    hyp = bind(tianji.algorithms.maddpg.MADDPGHyp, maddpg.hyp, "hyp", notices)
    assert (hyp.lr, hyp.actor_lr, hyp.tau, hyp.warmup_size) == (1e-2, 1e-2, 0.01, 1024)
    assert [name for name in ("epsilon", "target_replace_iter") if name in "".join(notices)] == [
        "epsilon",
        "target_replace_iter",
    ]


@pytest.mark.parametrize("wrapper", ["NoopResetEnv", "WarpFrame", "FrameStackOrder", "warp"])
def test_a_wrapper_of_atari_games_belongs_to_an_atari_env(wrapper: str) -> None:
    inner = f"dict(type={wrapper!r}, k=4, obs_format='NHWC')"
    text = f"environment = dict(gym_name='Pong', wrappers=[\n {inner}])"
    assert "belong to an AtariEnv" in refusal(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("exp = dict(seed=1)", "a.py: environment: a GymEnv needs a gym_name"),
        (
            ENVIRONMENT + "agnet = dict(type='DQN')",
            "a.py:2: 'agnet' is no section and no other line",
        ),
        (ENVIRONMENT + "agnet = dict(type='DQN')", "Did you mean 'agent'?"),
        (
            ENVIRONMENT + "actor_cfg = dict(num=2)",
            "a.py:2: actor_cfg belongs inside parallel_parameters",
        ),
        (
            ENVIRONMENT + "agent = dict(type='DQM')",
            "agent.type 'DQM' is not known. Did you mean 'DQN'?",
        ),
        (
            ENVIRONMENT + "agent = dict(type='a:b:c')",
            "agent.type 'a:b:c' is not known. Use 'ApeX', 'DQN'",
        ),
        (
            ENVIRONMENT + "agent = dict(embyro=1)",
            "agent has no key 'embyro'. Did you mean 'embryo'?",
        ),
        (ENVIRONMENT + "agent = 3", "a.py:2: agent must be dict(...), found 3"),
        (
            ENVIRONMENT + "agent = dict(type='PPO',\n embryo=dict(type='DQNHead'))",
            "embryo 'DQNHead' does not fit agent type 'PPO', which wants 'PPOHead'",
        ),
        (ENVIRONMENT + "embryo = dict(hip=1)", "embryo has no key 'hip'. Did you mean 'hyp'?"),
        (
            ENVIRONMENT + "embryo = dict(type='DQNHat')",
            "embryo.type 'DQNHat' is not known. Did you mean",
        ),
        (ENVIRONMENT + "hyp = [1]", "a.py:2: hyp must be dict(...), found (1,)"),
        (
            ENVIRONMENT + "parallel_parameters = dict(global_cfg=dict(group_num=0))",
            "global_cfg.group_num must be at least 1, found 0",
        ),
        (
            ENVIRONMENT + "parallel_parameters = dict(learner_cfg=dict(num=65))",
            "a.py:2: learner_cfg.num must be at most 64, found 65",
        ),
        (
            ENVIRONMENT + "parallel_parameters = dict(learner_cfg=dict(\n core=2))",
            "a.py:3: learner_cfg has no key 'core'. Did you mean 'cores'?",
        ),
        (
            ENVIRONMENT + "parallel_parameters = dict(actor_cfg=dict(trigger='x'))",
            "actor_cfg.trigger 'x' is not known. Use your own as 'module:Class'.",
        ),
    ],
)
def test_mistakes_name_their_line_and_the_nearest_word(text: str, message: str) -> None:
    assert message in refusal(text)


def test_building_blocks_may_have_any_name() -> None:
    assert config(ENVIRONMENT + "n = 4\nc = dict(num=n)\nparallel_parameters = dict(actor_cfg=c)")


def test_hyp_and_model_without_an_agent_are_used() -> None:
    plain = config(ENVIRONMENT + "hyp = dict(lr=1)\nmodel = dict(hidden=[8])")
    assert plain.hyp == {"lr": 1}
    assert plain.model.hidden == (8,)


def test_the_embryo_says_which_algorithm_and_its_hyp_wins() -> None:
    text = ENVIRONMENT + "hyp = dict(lr=1)\nembryo = dict(type='DQNHead', hyp=dict(lr=2))"
    dqn = config(text)
    assert (dqn.agent.type, dqn.hyp) == ("DQN", {"lr": 2})
    assert dqn.notices == ("a.py:2: hyp has no effect here: the embryo has its own",)


def test_unknown_keys_of_an_own_environment_belong_to_it() -> None:
    own = config(
        "environment = dict(type='my_env:MyEnv', length=[3], map_name='m', kwargs=dict(a={'b': 1}))"
    )
    assert own.environment.kwargs == {"a": {"b": 1}, "length": (3,), "map_name": "m"}
    assert own.notices == ()
    assert "environment has no key 'length'" in refusal(
        "environment = dict(gym_name='a', length=3)"
    )


def test_environments_of_several_agents_take_keys_of_their_own() -> None:
    smac = config("environment = dict(type='StarCraft2Env', map_name='3m', difficulty='7', seed=1)")
    assert smac.environment.kwargs == {"map_name": "3m", "difficulty": "7"}
    assert (smac.environment.seed, smac.notices) == (1, ())
    text = "environment = dict(type='MultiagentParticleEnv', scenario_name='simple', speed=2)"
    mpe = config(text, "environment.scenario_name='simple_tag'")
    assert mpe.environment.kwargs == {"scenario_name": "simple_tag", "speed": 2}
    assert from_json(mpe.to_json()) == mpe


def test_the_arguments_of_a_gym_environment_stand_in_kwargs() -> None:
    gym = config("environment = dict(gym_name='FrozenLake-v1', kwargs=dict(is_slippery=False))")
    assert gym.environment.kwargs == {"is_slippery": False}


@pytest.mark.parametrize(
    ("overrides", "read"),
    [
        (("hyp.lr=0.1",), lambda c: c.hyp == {"LR": 0.1}),
        (("embryo.hyp.LR=0.1",), lambda c: c.hyp == {"LR": 0.1}),
        (("hyp.gamma=0.9", "hyp.lr=default"), lambda c: c.hyp == {"gamma": 0.9}),
        (("actor_cfg.num=2",), lambda c: c.parallel.actor_cfg.num == 2),
        (("parallel_parameters.actor_cfg.num=2",), lambda c: c.parallel.actor_cfg.num == 2),
        (("environment.gym_name=Acrobot-v1",), lambda c: c.environment.gym_name == "Acrobot-v1"),
        (("environment.kwargs.a=1",), lambda c: c.environment.kwargs == {"a": 1}),
        (("exp.seed=3", "exp.seed=4"), lambda c: c.exp.seed == 4),
        (("model.hidden=[8,8]",), lambda c: c.model.hidden == (8, 8)),
        (("exp=dict(seed=5)",), lambda c: c.exp.seed == 5),
        (("learner_cfg.exit_val.learn_step=1e3",), lambda c: c.max_updates == 1000),
    ],
)
def test_an_override_replaces_one_key(overrides: tuple[str, ...], read: Any) -> None:
    assert read(config(ENVIRONMENT + "embryo = dict(type='DQNHead', hyp=dict(LR=1))", *overrides))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("exp.sed=3", "--set exp.sed: exp has no key 'sed'. Did you mean 'seed'?"),
        ("exp.seed=x", "--set exp.seed: exp.seed must be a whole number, found 'x'"),
        ("exp.seed=-1", "--set exp.seed: exp.seed must be at least 0, found -1"),
        ("hypp.lr=3", "--set hypp.lr: there is no section 'hypp'. Did you mean 'hyp'?"),
        ("exp.seed", "--set exp.seed: want section.key=value, as in hyp.lr=0.001"),
        ("exp.seed=", "--set exp.seed=: want section.key=value, as in hyp.lr=0.001"),
        ("exp..seed=1", "--set exp..seed=1: want section.key=value, as in hyp.lr=0.001"),
        ("exp=3", "--set exp: exp must be dict(...), found 3"),
        ("environment.gym_name.a=3", "--set environment.gym_name.a: gym_name is no section"),
        ("actor_cfg.num=0", "--set actor_cfg.num: actor_cfg.num must be at least 1, found 0"),
    ],
)
def test_an_override_has_the_same_checks(override: str, message: str) -> None:
    assert refusal(ENVIRONMENT, override) == message


def test_the_key_of_an_override_is_named_by_a_later_check_of_hyp() -> None:
    hyp = config(ENVIRONMENT, "hyp.lrr=1").hyp
    assert str(hyp.at("lrr")) == "--set hyp.lrr"


def test_a_config_cannot_be_changed() -> None:
    frozen = config(ENVIRONMENT)
    with pytest.raises(AttributeError):
        frozen.name = "b"  # type: ignore[misc]  # the subject of the test
    with pytest.raises(TypeError):
        frozen.hyp["lr"] = 1  # type: ignore[index]  # the subject of the test


@pytest.mark.parametrize(
    "change",
    [
        {"name": 3},
        {"notices": [3]},
        {"exp": []},
        {"exp": {"sed": 1}},
        {"exp": {"seed": float("nan")}},
        {"extra": 1},
        {"hyp": {3: 4}},
        {"agent": {"type": "MADDPX"}},
        {"hyp": {"lr": object()}},
    ],
)
def test_a_spoilt_json_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(TianJiError, match=r"^config\.json: "):
        from_json({**config(ENVIRONMENT).to_json(), **change})


def test_importing_the_package_loads_no_heavy_library() -> None:
    program = "import sys, tianji.config; print(*{'numpy', 'torch', 'gymnasium'} & {*sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


def test_an_end_after_fusions_that_never_come_is_told() -> None:
    text = ENVIRONMENT + "g = dict({})\nparallel_parameters = dict(global_cfg=g)"
    end, told = "exit_val=dict(fusion_step=10)", "exit_val.fusion_step has no effect here: "
    assert config(text.format(f"{end}, group_num=2")).notices == ()
    alone = config(text.format(end)).notices
    assert alone == (f"a.py:2: {told}there is one group, and no fusion",)
    apart = config(text.format(f"{end}, group_num=2, use_group_parallel=False")).notices
    assert apart == (f"a.py:2: {told}use_group_parallel is False, and no fusion",)
