"""Several agents learn together: the game that tells mixers apart, foraging, particles."""

import pytest
from commands import ROOT, TASKS, train

import tianji
from tianji.config.keys import HEADS

pytestmark = [pytest.mark.learning, pytest.mark.process]

MARL = ROOT / "configs" / "marl"
SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))]


def greedy_return(folder, episodes):
    return tianji.evaluate(tianji.load(folder), episodes).mean


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("kind", "best"), [("QMIX", 8), ("VDN", 7), ("IQL", 7)])
def test_a_mixer_finds_what_neither_a_sum_nor_one_alone_can(tmp_path, kind, best, seed):
    """7 is safe; 8 is behind a choice that is bad unless both then choose well."""
    chosen = ("--set", f"agent.type={kind}", "--set", f"agent.embryo={HEADS[kind]}")
    options = ("--engine", "local", "--seed", str(seed), *chosen)
    done = train(MARL / "qmix_two_step.py", tmp_path / "run", *options)
    assert done.status == 0, done.err
    assert greedy_return(tmp_path / "run", 4) == done.summary["evaluation"]["last"] == best


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["MAPPO", "IPPO"])
def test_policies_find_the_best_choice_without_a_mixer(tmp_path, kind, seed):
    chosen = ("--set", f"agent.type={kind}", "--set", f"agent.embryo={kind}Head")
    options = ("--engine", "local", "--seed", str(seed), *chosen)
    done = train(TASKS / "two_step_mappo.py", tmp_path / "run", *options)
    assert done.status == 0, done.err
    assert greedy_return(tmp_path / "run", 4) == 8


def test_whoever_learns_adapts_to_whoever_is_played(tmp_path):
    """With a partner that is always bold, 8 is there for one alone."""
    (tmp_path / "partner.py").write_text("def bold(obs, mask, rng):\n    return mask[..., 1] * 1\n")
    text, game = (MARL / "qmix_two_step.py").read_text(), 'type="MatrixGameEnv"'
    assert game in text
    config = tmp_path / "with_partner.py"
    config.write_text(text.replace(game, f'{game}, opponents=dict(agent_1="partner:bold")'))
    chosen = ("agent.type=IQL", "agent.embryo=IQLHead", "exp.train_steps=8_000")
    options = [word for setting in chosen for word in ("--set", setting)]
    done = train(config, tmp_path / "run", "--seed", "1", *options)
    assert done.status == 0, done.err
    assert greedy_return(tmp_path / "run", 4) == 8


def forage(tmp_path, seed, task, *settings):
    """A run of the preset in another field."""
    pytest.importorskip("lbforaging")
    said = (f"environment.name={task}", "exp.eval_step=None", *settings)
    options = [word for setting in said for word in ("--set", setting)]
    config = MARL / "fast_qmix_lbf.py"
    done = train(config, tmp_path / "run", "--engine", "local", "--seed", str(seed), *options)
    assert done.status == 0, done.err
    return done


SMALL = (
    *("exp.max_step=25", "exp.train_steps=80_000", "exp.stop_return=0.75", "actor_cfg.envs=16"),
    *("model.hidden=[64, 64]", "hyp.lr=2e-3", "hyp.step_len=12", "hyp.warmup_size=2_000"),
    *("hyp.max_decay_step=20_000", "hyp.decay_updates=150"),
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_two_agents_learn_to_forage(tmp_path, seed):
    """A random pair eats one of four; what is above its own level an agent cannot eat alone."""
    done = forage(tmp_path, seed, "Foraging-5x5-2p-1f-v3", *SMALL)
    assert done.summary["status"] == "solved"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("task", ["Foraging-8x8-2p-1f-v3", "Foraging-5x5-2p-1f-coop-v3"])
def test_they_do_on_a_larger_field_and_where_no_food_is_for_one_alone(tmp_path, task):
    forage(tmp_path, 1, task)
    assert greedy_return(tmp_path / "run", 100) >= 0.9


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "task", [pytest.param("spread_qmix.py", marks=pytest.mark.slow), "spread_maddpg.py"]
)
def test_particles_learn_to_cover_landmarks(tmp_path, task, seed):
    pytest.importorskip("mpe2")
    done = train(TASKS / task, tmp_path / "run", "--engine", "local", "--seed", str(seed))
    assert done.status == 0, done.err
    assert done.summary["status"] == "solved"  # 100 games at -19.5, six deviations from random
