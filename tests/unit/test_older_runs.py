"""Runs of version 0.2 load and go on; what only that version has, it is named for.

`data/runs-0.2.tar.xz` was made by 0.2.0 (commit d874074): PPO on CartPole with a network of four
units, one in the local engine with messages in flight, one asynchronous in processes.
"""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

import tianji
from tianji.core import checkpoint
from tianji.core.errors import TianJiError
from tianji.engines.local import LocalEngine
from tianji.job.job import load_algorithm
from tianji.job.preflight import try_out
from tianji.runs.resume import find, reopen

ARCHIVE = Path(__file__).parents[1] / "data" / "runs-0.2.tar.xz"
MORE = ("exp.episodes=30", "exp.train_steps=2000")


@pytest.fixture
def runs(tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def rewrite(file, old, new):
    """Puts other words into a run's configuration."""
    text = file.read_text().replace(old, new)
    assert new in text
    file.write_text(text)


def test_a_run_of_0_2_has_its_weights(runs):
    part = checkpoint.newest(runs / "ppo_local")[0].part("learner-0.0")
    assert np.array_equal(tianji.load(runs / "ppo_local").weights, part["weights"])


def test_a_run_of_0_2_goes_on_in_the_local_engine(runs):
    config, _ = reopen(runs / "ppo_local", MORE)
    saved = find(runs / "ppo_local", config).saved
    assert saved.part("channels") is not None
    engine = LocalEngine(try_out(config), None, saved)
    assert engine.learner.version == saved.version
    assert np.array_equal(engine.learner.algorithm.weights(), saved.part("learner-0.0")["weights"])
    assert len(engine.troubles) == 1  # what was in flight
    report = tianji.resume(runs / "ppo_local", *MORE)
    assert report.summary["episodes"] >= 30
    assert report.summary["updates"] > saved.version


def test_a_run_of_0_2_goes_on_under_todays_words(runs):
    config, engine = reopen(runs / "ppo_clip", MORE)
    words = {"correction": "ewma", "average_decay": 0.0, "weight_cap": 1.0}
    assert config.hyp.plain().items() >= words.items()
    assert engine == "process"
    algorithm = LocalEngine(try_out(config), None, find(runs / "ppo_clip", config).saved).learner
    assert algorithm.version == checkpoint.newest(runs / "ppo_clip")[0].version
    assert len(tianji.load(runs / "ppo_clip").weights)


def test_what_was_the_default_then_is_kept(runs):
    for file in (runs / "ppo_clip").rglob("config.json"):
        about = json.loads(file.read_text())
        del about["config"]["hyp"]["correction"]
        about["hyp"]["correction"] = "none"
        file.write_text(json.dumps(about))
    assert reopen(runs / "ppo_clip", MORE)[0].hyp["correction"] == "none"


def resumed(run):
    """The algorithm that a run goes on with."""
    return load_algorithm(reopen(run, MORE)[0])


@pytest.mark.parametrize("use", [tianji.load, resumed])
def test_what_is_gone_is_named_with_the_version_that_has_it(runs, use):
    rewrite(runs / "ppo_clip" / "config.json", '"clip"', '"vtrace"')
    with pytest.raises(TianJiError, match=r"hyp\.correction 'vtrace'.*0\.2"):
        use(runs / "ppo_clip")


def test_scalars_go_on_by_their_names():
    from tianji.core.counts import Count
    from tianji.roles.sample_stats import SampleStats

    before, after = (SampleStats(np.zeros(len(Count)), names) for names in (("a", "b"), ("b", "c")))
    before.restore(before.state() | {"scalars": {"a": 1.0, "b": 2.0}})
    after.restore(before.state())
    assert after.state()["scalars"] == {"b": 2.0, "c": 0.0}
