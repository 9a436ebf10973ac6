"""All algorithms learn, in both engines."""

import pytest
from commands import ROOT, TASKS, train

pytestmark = [pytest.mark.learning, pytest.mark.process]

ENGINES = ("local", "process")
ALGORITHMS = ("apex", "dqn", "impala", "ppo", "pqn")
QUICK = [(algorithm, "local") for algorithm in ALGORITHMS] + [
    ("dqn", "process"),
    ("ppo", "process"),
]
LONG = [pytest.param(each, "process", marks=pytest.mark.slow) for each in ("apex", "impala", "pqn")]
PIXELS = [pytest.param("apex", marks=pytest.mark.slow), *ALGORITHMS[1:]]  # Ape-X is DQN's file


@pytest.mark.parametrize(("algorithm", "engine"), QUICK + LONG)
def test_the_echo_task_is_learned_in_seconds(tmp_path, algorithm, engine):
    done = train(TASKS / f"echo_{algorithm}.py", tmp_path / "run", "--engine", engine)
    assert done.status == 0, done.err
    assert done.summary["status"] == "solved"


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        ("ppo", "discrete"),
        pytest.param("ppo", "binary", marks=pytest.mark.slow),
        pytest.param("impala", "discrete", marks=pytest.mark.slow),
    ],
)
def test_several_choices_at_once_are_learned(tmp_path, algorithm, kind):
    config, options = TASKS / f"several_{algorithm}.py", ("--set", f"environment.kind={kind}")
    done = train(config, tmp_path / "run", "--engine", "local", *options)
    assert done.status == 0, done.err
    assert done.summary["status"] == "solved"


NUMBERS = [("sac", "local")]
NUMBERS += [pytest.param(name, "process", marks=pytest.mark.slow) for name in ("sac", "td3")]


@pytest.mark.parametrize(("algorithm", "engine"), NUMBERS)
def test_actions_that_are_numbers_are_learned_in_seconds(tmp_path, algorithm, engine):
    """A random policy returns -10, one that explores no more 10."""
    done = train(TASKS / f"aim_{algorithm}.py", tmp_path / "run", "--engine", engine)
    assert done.status == 0, done.err
    assert done.summary["status"] == "solved"


CONTROL = {"pendulum_sac": (-200, 50_000), "pendulum_td3": (-200, 80_000)}
CONTROL["mountaincar_td3"] = 90, 100_000


@pytest.mark.slow
@pytest.mark.parametrize("preset", CONTROL)
def test_a_preset_for_actions_that_are_numbers_gets_there_in_a_minute(tmp_path, preset):
    """Exploration included. Each took 9 to 17 s of 60 on two busy cores."""
    target, steps = CONTROL[preset]
    options = ("--max-seconds", "60", "--set", f"exp.train_steps={steps}")
    done = train(ROOT / "configs" / f"{preset}.py", tmp_path / "run", *options)
    assert done.summary["status"] == "solved"
    assert done.summary["mean_return_100"] >= target


SEEDS = [  # with balls that one may follow: daily; with those that one must foresee
    (1, 1),
    *(pytest.param(seed, 2, marks=pytest.mark.slow) for seed in (1, 2, 3)),
]


@pytest.mark.parametrize(("seed", "fastest"), SEEDS)
@pytest.mark.parametrize("algorithm", PIXELS)
def test_a_game_of_pixels_is_learned(tmp_path, algorithm, seed, fastest):
    options = ("--engine", "local", "--seed", str(seed))
    options += ("--set", f"environment.kwargs=dict(size=12, fastest={fastest})")
    done = train(TASKS / f"catch_{algorithm}.py", tmp_path / "run", *options)
    assert done.status == 0, done.err
    assert done.summary["status"] == "solved"


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_game_of_pixels_is_learned_by_processes(tmp_path, algorithm):
    done = train(TASKS / f"catch_{algorithm}.py", tmp_path / "run", "--engine", "process")
    assert done.status == 0, done.err
    assert done.summary["status"] == "solved"


GROUPS, LEARNERS = "global_cfg.group_num=2", "learner_cfg.num=2"
PAIRS = [("dqn", GROUPS, "process"), ("ppo", LEARNERS, "process"), ("ppo", GROUPS, "local")]
MORE = [("dqn", LEARNERS, "process"), ("ppo", GROUPS, "process"), ("dqn", GROUPS, "local")]


@pytest.mark.parametrize(
    ("algorithm", "key", "engine"),
    [*PAIRS, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in MORE)],
)
def test_the_echo_task_is_learned_by_two(tmp_path, algorithm, key, engine):
    options = ("--engine", engine, "--set", key, "--set", "actor_cfg.num=2")
    more = ("--set", "learner_cfg.send_root_interval=2")
    done = train(TASKS / f"echo_{algorithm}.py", tmp_path / "run", *options, *more)
    assert done.status == 0, done.err
    assert done.summary["status"] == "solved"


@pytest.mark.parametrize("engine", ENGINES)
def test_ppo_solves_cartpole(tmp_path, engine):
    done = train(ROOT / "configs" / "cartpole_ppo.py", tmp_path / "run", "--engine", engine)
    assert done.summary["status"] == "solved"
    assert done.summary["mean_return_100"] >= 475


def test_asynchronous_ppo_solves_cartpole(tmp_path):
    """With the preset's own learning rate."""
    options = ("--set", "hyp.mode=async", "--set", "actor_cfg.num=2")
    done = train(ROOT / "configs" / "cartpole_ppo.py", tmp_path / "run", *options)
    assert done.summary["status"] == "solved"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("engine", [pytest.param("local", marks=pytest.mark.slow), "process"])
def test_dqn_solves_cartpole(tmp_path, engine):
    options = ("--engine", engine)
    done = train(ROOT / "configs" / "cartpole_dqn.py", tmp_path / "run", *options, timeout=280)
    assert done.summary["status"] == "solved"
    assert done.summary["mean_return_100"] >= 475


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("config", ["cartpole_ppo", "cartpole_dqn"])
def test_cartpole_is_solved_with_three_seeds(tmp_path, config, seed):
    path = ROOT / "configs" / f"{config}.py"
    done = train(path, tmp_path / "run", "--seed", str(seed), timeout=880)
    assert done.summary["status"] == "solved"
