"""Every file in configs/ can be trained with: it loads, and its job can be prepared."""

import pytest
from agents_tasks import agents_env
from commands import ROOT

from tianji.config import load
from tianji.core.errors import TianJiError
from tianji.job.factory import make_env
from tianji.job.job import prepare

CONFIGS = ROOT / "configs"
FILES = [str(path.relative_to(CONFIGS)) for path in sorted(CONFIGS.rglob("*.py"))]
GAMES = {
    "pong": "Pong",
    "breakout": "Breakout",
    "beamrider": "BeamRider",
    "assault": "Assault",
    "boxing": "Boxing",
}
TABLE_2 = {
    "dqn": {
        "gamma": 0.99,
        "epsilon": 0.02,
        "target_replace_iter": 64,
        "lr": 2.5e-5,
        "adam_eps": 1e-8,
        "warmup_size": 625,
        "buffer_size": 25_000,
    },
    "ppo": {"gamma": 0.99, "gae_lambda": 0.95, "update_step": 10, "lr": 1e-4, "adam_eps": 1e-5},
}
TABLE_2_QMIX = {
    **{"gamma": 0.99, "epsilon": 0.01, "decay_updates": 10_000, "target_replace_iter": 64},
    **{"mixing_units": 32, "clip_grad_norm": 10, "optimiser": "rmsprop", "adam_eps": 1e-5},
    **{"lr": 1e-4, "step_len": 16, "warmup_size": 32 * 16, "buffer_size": 5_000 * 16},
}
LENGTHS, HIDDEN = {"dqn": 16, "ppo": 512}, {"dqn": (512,), "ppo": (256,)}


def job_of(name, *overrides):
    config = load(CONFIGS / name, overrides)
    try:
        env = make_env(config)
    except TianJiError as problem:
        if "not installed" not in str(problem) or not name.startswith("marl/"):
            raise
        # StarCraft II and JaxMARL are not here: another game of several agents, with one reward.
        own = config.agent.type in ("MADDPG", "MAPPO")
        return prepare(config, agents_env(n_envs=2, reward_per_agent=own))
    env.close()
    return prepare(config, env.spec)


@pytest.mark.parametrize("name", ["pong_laptop_dqn.py", "pong_laptop_pqn.py"])
def test_q_learning_on_two_cores_sees_what_ppo_sees_there(name):
    ppo, other = (load(CONFIGS / "atari" / file) for file in ("pong_laptop.py", name))
    assert ppo.environment.wrapping == other.environment.wrapping
    assert (ppo.model.convs, ppo.model.hidden) == (other.model.convs, other.model.hidden)
    assert other.stop_return == ppo.stop_return == 18


@pytest.mark.parametrize("name", FILES)
def test_a_preset_can_be_trained_with(name):
    job = job_of(name, "actor_cfg.envs=2")
    assert job.length >= 1 and job.ratio > 0
    assert not job.config.notices or name == "figure7.py"


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("algorithm", TABLE_2)
def test_the_papers_presets_have_the_values_of_its_table(algorithm, game):
    job = job_of(f"atari/paper_{algorithm}_{game}.py", "actor_cfg.envs=2")
    hyp = {key: getattr(job.task.hyp, key) for key in TABLE_2[algorithm]}
    assert hyp == TABLE_2[algorithm]
    assert job.length == LENGTHS[algorithm] and job.task.model.hidden == HIDDEN[algorithm]
    assert job.config.environment.game == GAMES[game]
    assert job.task.env.input_shape == (4, 84, 84)


@pytest.mark.parametrize("game", ["smac", "smax"])
@pytest.mark.parametrize("map_name", ["3m", "8m", "2s3z"])
def test_so_has_qmix_on_every_map(game, map_name):
    job = job_of(f"marl/paper_qmix_{game}.py", f"environment.map_name={map_name}")
    hyp = {key: getattr(job.task.hyp, key) for key in TABLE_2_QMIX}
    assert hyp == TABLE_2_QMIX
    assert (job.task.model.hidden, job.task.model.gru) == ((32,), 32)
    assert job.config.environment.kwargs["map_name"] == map_name


@pytest.mark.parametrize("game", GAMES)
def test_every_game_has_a_fast_preset(game):
    assert load(CONFIGS / f"atari/fast_{game}.py").environment.game == GAMES[game]
