"""How the operating system treats the processes of a run."""

import os
import subprocess
import sys

import pytest

SETTLE = (
    "import os, sys; from tianji.engines import worker; worker._settle(sys.argv[1]);"
    "print(os.sched_getscheduler(0), os.nice(0))"
)


@pytest.mark.parametrize(
    ("home", "policy", "niceness"),
    [
        ("learner-0.0", os.SCHED_OTHER, 0),
        ("actor-0.3", os.SCHED_BATCH, 0),  # woken by weights, it lets the learner wake the others
        ("evaluator-0.0", os.SCHED_OTHER, 19),
    ],
)
def test_learners_come_first_on_a_core_that_is_shared(home, policy, niceness):
    given = os.environ | {"TIANJI_LAUNCHER": str(os.getpid())}
    words = [sys.executable, "-c", SETTLE, home]
    done = subprocess.run(words, env=given, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [str(policy), str(min(19, os.nice(0) + niceness))]
