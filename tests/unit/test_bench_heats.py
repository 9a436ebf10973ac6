"""Heats of bench/plan.py: every shape once, each on cores of its own."""

import os

import benches  # noqa: F401  (finds the scripts)
import heats
from profiles import graded

from tianji.strategy.plan.model import predict
from tianji.strategy.plan.solver import PlanRequest, candidates


def test_every_shape_runs_once_with_its_fastest_environments():
    job, wish = graded(), PlanRequest(8)
    found = heats.shapes(job, wish)
    all_of_them = list(candidates(job, wish))
    assert len(found) == len({heats.shape_of(split) for split in all_of_them})
    for split in found:
        same = [s for s in all_of_them if heats.shape_of(s) == heats.shape_of(split)]
        best = max(predict(job, s).production for s in same)
        assert predict(job, split).production == best


def test_no_heat_has_more_roles_than_cores_and_nobody_is_left_out():
    job, wish = graded(), PlanRequest(8)
    splits = heats.shapes(job, wish)

    def size(split):
        return split.cores(job.work)

    found = heats.packed(splits, size, 8)
    assert all(sum(map(size, heat)) <= 8 for heat in found)
    assert sorted(map(repr, splits)) == sorted(repr(split) for heat in found for split in heat)
    assert len(found) < len(splits)


def test_the_runs_of_a_heat_have_different_cores_and_one_that_fails_is_none(monkeypatch):
    here, given = os.sched_getaffinity(0), {}
    monkeypatch.setattr(heats.os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(
        heats.os, "sched_setaffinity", lambda pid, cores: given.setdefault(tuple(cores))
    )

    def train(split):
        if split == "bad":
            raise RuntimeError("no")
        return {"split": split}

    rows = heats.run(["large", "bad", "small"], {"large": 2, "bad": 1, "small": 1}.get, train)
    assert rows == [{"split": "large"}, None, {"split": "small"}]
    assert set(given) == {(0, 1), (2,), (3,)}
    monkeypatch.undo()
    assert os.sched_getaffinity(0) == here
