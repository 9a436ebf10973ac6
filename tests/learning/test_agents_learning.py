"""Several agents learn together: the game that tells mixers apart."""

import pytest
from commands import ROOT, TASKS, train

import tianji

pytestmark = [pytest.mark.learning, pytest.mark.process]

MARL = ROOT / "configs" / "marl"
SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))]


def greedy_return(folder, episodes):
    return tianji.evaluate(tianji.load(folder), episodes).mean


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("mixer", "best"), [("qmix", 8), ("vdn", 7)])
def test_a_mixer_finds_what_a_sum_cannot(tmp_path, mixer, best, seed):
    """7 is safe; 8 is behind a choice that is bad unless both then choose well."""
    options = ("--engine", "local", "--seed", str(seed), "--set", f"hyp.mixer={mixer}")
    done = train(MARL / "qmix_two_step.py", tmp_path / "run", *options)
    assert done.status == 0, done.err
    assert greedy_return(tmp_path / "run", 4) == best


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["MAPPO", "IPPO"])
def test_policies_find_the_best_choice_without_a_mixer(tmp_path, kind, seed):
    chosen = ("--set", f"agent.type={kind}", "--set", f"agent.embryo={kind}Head")
    options = ("--engine", "local", "--seed", str(seed), *chosen)
    done = train(TASKS / "two_step_mappo.py", tmp_path / "run", *options)
    assert done.status == 0, done.err
    assert greedy_return(tmp_path / "run", 4) == 8
