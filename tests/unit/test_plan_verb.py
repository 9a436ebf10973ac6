"""`tianji plan` without measuring: what it plans for, and the command that it ends with."""

import argparse

from tianji import resources
from tianji.verbs import plan


def options_of(*words):
    parser = argparse.ArgumentParser()
    plan.arguments(parser)
    return parser.parse_args(["job.py", *map(str, words)])


def test_a_plan_in_a_container_is_for_the_cores_that_it_pays_for(monkeypatch):
    monkeypatch.setattr(resources, "available_cores", lambda: tuple(range(64)))
    monkeypatch.setattr(resources, "quota", lambda: 2.0)
    assert plan._wish(options_of()).cores == 2
    assert plan._wish(options_of("--cores", 4)).cores == 4
