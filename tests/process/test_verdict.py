"""What a run says limits it is what helps when there is more of it, by runs with slept costs."""

import json
import re

import pytest
from commands import TASKS, end, start

pytestmark = pytest.mark.process

MORE = {
    "as it is": (),
    "one more actor": ("--set", "actor_cfg.num=2"),
    "one more core": ("--set", "agent.type='slept:TwoCoreDQN'"),
}


def summaries(tmp_path, *options):
    """Of three runs side by side: they sleep, and so need no core of each other's."""
    folders = {name: tmp_path / name.replace(" ", "-") for name in MORE}
    config = TASKS / "slept_dqn.py"
    runs = {name: start(config, folders[name], *options, *more) for name, more in MORE.items()}
    try:
        for run in runs.values():
            _, err = run.communicate(timeout=120)
            assert run.returncode == 0, err
    finally:
        for run in runs.values():
            end(run)
    return {name: json.loads((at / "summary.json").read_text()) for name, at in folders.items()}


def gains(found):
    """In samples per second, by what there is one more of."""
    before = found["as it is"]["consumption_per_second"]
    return {name: run["consumption_per_second"] / before for name, run in found.items()}


def promised(found):
    """What one more of what limits the run would bring, by its own estimate."""
    return 1 + int(re.search(r"([+-]\d+) %", found["as it is"]["bottleneck"])[1]) / 100


def test_where_production_limits_an_actor_helps_and_a_core_does_not(tmp_path):
    found = summaries(tmp_path)
    gained = gains(found)
    assert gained["one more actor"] > 1.5
    assert gained["one more core"] < 1.2
    for name in ("as it is", "one more core"):
        assert found[name]["bottleneck"].startswith("sample-bound"), name
    assert promised(found) == pytest.approx(gained["one more actor"], rel=0.25)


@pytest.mark.slow
def test_where_consumption_limits_a_core_helps_and_an_actor_does_not(tmp_path):
    often = "--set", "global_cfg.replay_ratio=4"  # so that a busy machine's actors keep up too
    found = summaries(tmp_path, "--set", "environment.seconds=0.002", *often)
    gained = gains(found)
    assert gained["one more core"] > 1.5
    assert gained["one more actor"] < 1.2
    for name in ("as it is", "one more actor"):
        assert found[name]["bottleneck"].startswith("training-bound"), name
    assert promised(found) > 1.25  # "at most"
