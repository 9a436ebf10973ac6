"""What a run says limits it is what helps when there is more of it, by runs with slept costs."""

import json
import re

import pytest
from commands import TASKS, end, start

pytestmark = [pytest.mark.process, pytest.mark.slow]  # by what a core makes: not on a busy machine

MORE = {
    "as it is": (),
    "one more actor": ("--set", "actor_cfg.num=2"),
    "one more core": ("--set", "agent.type='slept:TwoCoreDQN'"),
}

HELPS = 2**0.5  # times the samples: twice as many are expected, or as many as before


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


def check_that_time_adds_up(found):
    """Of every process; the buffer rides with the learner, and so it is idle with it."""
    for run in found.values():
        beside = {"learner-0.0": run["roles"]["buffer-0.0"]["busy"]}
        for name, role in run["roles"].items():
            waits = sum(share for what, share in role.items() if what.startswith("wait_"))
            assert waits == pytest.approx(role["idle"], abs=1e-4)
            if not name.startswith("buffer"):
                whole = role["busy"] + waits + role["paused"] + role["overhead"]
                assert whole + beside.get(name, 0.0) == pytest.approx(1.0, abs=0.01)


def test_where_production_limits_an_actor_helps_and_a_core_does_not(tmp_path):
    found = summaries(tmp_path)
    gained = gains(found)
    assert gained["one more actor"] > HELPS
    assert gained["one more core"] < HELPS
    for name in ("as it is", "one more core"):
        assert found[name]["bottleneck"].startswith("sample-bound"), name
    assert promised(found) == pytest.approx(gained["one more actor"], rel=0.35)
    learner, actor = (found["as it is"]["roles"][name] for name in ("learner-0.0", "actor-0.0"))
    assert learner["wait_batch"] == pytest.approx(learner["idle"], abs=1e-5) and actor["busy"] > 0.8
    check_that_time_adds_up(found)


def test_where_consumption_limits_a_core_helps_and_an_actor_does_not(tmp_path):
    often = "--set", "global_cfg.replay_ratio=4"  # so that a busy machine's actors keep up too
    found = summaries(tmp_path, "--set", "environment.seconds=0.002", *often)
    gained = gains(found)
    assert gained["one more core"] > HELPS
    assert gained["one more actor"] < HELPS
    for name in ("as it is", "one more actor"):
        assert found[name]["bottleneck"].startswith("training-bound"), name
    assert promised(found) > 1.25  # "at most"
    actor = found["as it is"]["roles"]["actor-0.0"]
    assert actor["wait_room"] > 0.5 > actor["wait_weights"]
    check_that_time_adds_up(found)
