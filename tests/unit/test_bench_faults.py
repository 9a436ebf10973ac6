"""What `bench/faults.py` makes of its rows."""

import math
import os

import benches  # noqa: F401
import faults


def cells(rows):
    lines = faults.table(rows).splitlines()[4:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_times_with_faults_are_told_beside_those_without():
    rows = [
        dict(part="a", task="ppo", how=how, seed=seed, seconds=seconds, kills=kills)
        for how, kills, times in (("none", 0, (10.0, 12.0, 11.0)), ("faults", 4, (12, 13.2, 16.5)))
        for seed, seconds in enumerate(times)
    ]
    plain, faulty, ratio = cells(rows)
    assert plain[1] == "11.0 (10.0-12.0) s" and faulty[1] == "13.2 (12.0-16.5) s"
    assert "4 kills" in faulty[0] and ratio[1].startswith("1.20 (")


def test_a_run_that_never_arrives_makes_no_ratio():
    row = dict(part="a", task="dqn", seed=1, kills=3)
    plain, faulty = row | dict(how="none", seconds=9.0), row | dict(how="faults", seconds=math.inf)
    [*_, ratio] = cells([plain, faulty])
    assert ratio[1] in ("never", "-")


def test_schedules_are_added_up_and_lost_counts_of_both_signs_count():
    row = dict(part="c", how="10 schedules", kills=12, hang=0, left=1, missing=-16)
    found = cells([row, row | dict(hang=1, missing=16), row | dict(missing=None)])
    assert found[0][0].startswith("30 random schedules, 36 kills")
    assert [line[1] for line in found] == ["1", "3", "32"]


def test_a_process_that_is_none_of_ours_has_no_role():
    assert faults.home_of(os.getpid()) == "" and faults.home_of(2**30) == ""
    assert not faults.kill(2**30 - 1)


def test_shared_memory_that_is_held_is_seen():
    descriptor = os.memfd_create("tianji")
    try:
        memory = faults.memory_of(os.getpid())
        assert os.fstat(descriptor).st_ino in memory
        assert os.getpid() in faults.holders(memory)
    finally:
        os.close(descriptor)
    assert os.getpid() not in faults.holders({os.stat("/").st_ino + 10**15})
