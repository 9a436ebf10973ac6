"""What is measured, in which order and how often; the measurements themselves are made up."""

import contextlib
import dataclasses
import os
import threading

import pytest

from tianji.config import load
from tianji.job.preflight import try_out
from tianji.strategy.probe import probe as probing
from tianji.strategy.probe import probe_children, probe_process, stages
from tianji.strategy.probe.probe_handle import OutOfMemory


class ProbeHandle(contextlib.AbstractContextManager):
    """A child that measures nothing."""

    def __init__(self, kind, threads, device):
        self.kind, self.threads = kind, threads
        self.is_loaded = False

    def await_loaded(self):
        self.is_loaded = True

    def kill(self):
        """There is nobody."""

    def __exit__(self, *_):
        return None


@pytest.fixture
def measured(root, monkeypatch):
    """Probes a job whose learners take so long; returns profile and stages.

    No more than `most` learners fit at once, and no configuration called `full`; roles on
    `slow_cores` take three times as long; `seats` gets who sat where, `pauses` how long
    each of them slept.
    """

    def measure(
        name,
        update_seconds,
        gpu=None,
        cores=8,
        seconds=600.0,
        slow_cores=(),
        seats=None,
        pauses=None,
        full=None,
        most=99,
    ):
        stages = []

        def together(tasks, seconds):
            hands = [task.hand for task in tasks]
            assert all(hand.is_loaded for hand in hands)
            n_learners = sum(hand.kind == "learner" for hand in hands)
            if n_learners > most or any(task.config.name == full for task in tasks):
                raise OutOfMemory("no room")
            stages.append([(task.hand.kind, task.hand.threads, len(task.cores)) for task in tasks])
            if seats is not None:
                seats.append([(task.hand.kind, tuple(task.cores)) for task in tasks])
            if pauses is not None:
                pauses.extend(task.pause for task in tasks)
            in_use = sum(len(task.cores) for task in tasks)
            sharing = n_learners if gpu else 1

            def times(mine):
                return 3.0 if set(slow_cores) & set(mine) else 1.0

            def busy(mine):
                """Twice as slow where all cores are busy."""
                return 1.0 + (in_use - len(mine)) / max(1, cores - len(mine))

            return [
                acting(task.pause, times(task.cores))
                if task.hand.kind == "actor"
                else learning(task.hand.threads, busy(task.cores) * sharing * times(task.cores))
                for task in tasks
            ]

        def acting(pause, times):
            slow = times * (1.5 if pause else 1.0)
            return {
                "seconds": slow, "n_steps": 10_000, "n_sent": 100, "length": 100.0, "sending": 0.0,
                "loading": 0.0, "deciding": 1e-5, "trajectory_bytes": 1, "memory_bytes": 1,
                "computing": 0.5, "rollouts": [slow / 100] * 100 if pause else [],
                "one_pass": False,
            }  # fmt: skip

        def learning(threads, times):
            updating = 100 * update_seconds(threads) * times
            return {
                "seconds": updating, "updates": 100, "n_received": 100, "updating": updating,
                "adding": 0.0, "drawing": 0.1 * updating, "storing": 0.0, "memory_bytes": 1,
            }  # fmt: skip

        monkeypatch.setattr(probe_children, "ProbeHandle", ProbeHandle)
        monkeypatch.setattr(probe_children, "together", together)
        monkeypatch.setattr(probing.resources, "available_cores", lambda: tuple(range(cores)))
        monkeypatch.setattr("tianji.strategy.probe.this_machine.gpu_of", lambda device: gpu)
        config = load(root / "tests" / "tasks" / name, [])
        return probing.probe(try_out(config), cores, seconds=seconds), stages

    return measure


def test_more_cores_are_measured_as_long_as_they_bring_something(measured):
    for name, most in (("walk_dqn.py", 4), ("walk_ppo.py", 8)):  # actors need a core, or share
        grows, _ = measured(name, lambda threads: 0.01 / threads)
        assert max(cost.cores for cost in grows.learners) == most
        stays, stages = measured(name, lambda threads: 0.01)
        assert {cost.cores for cost in stays.learners} == {1}  # two were tried, and no more
        assert max(role[1] for stage in stages for role in stage) == 2


def test_a_learner_is_measured_beside_busy_cores_and_alone(measured):
    found, stages = measured("walk_dqn.py", lambda threads: 0.01)
    assert found.learners[0].update_seconds == pytest.approx(0.02)
    assert found.learners[0].contention == pytest.approx(2.0)
    assert max(map(len, stages)) == 8  # every core has a learner or an actor


def test_learners_and_actors_sit_beside_each_other_and_move_on(measured):
    seats = []
    measured("walk_dqn.py", lambda threads: 0.01, seats=seats)
    whole = [stage for stage in seats if len(stage) == 8]
    first, second = (
        {cores[0] for kind, cores in stage if kind == "learner"} for stage in whole[:2]
    )
    assert first == {1, 3, 5, 7} and second == {0, 2, 4, 6}
    assert all(len({cores for _, cores in stage}) == 8 for stage in whole)
    alone = [stage[0][1] for stage in seats if len(stage) == 1]
    assert len(set(alone)) > 4, "a lone learner was always on the same cores"


def test_a_slow_core_counts_as_one_of_many(measured):
    """It once counted as all of them, where it happened to be the first."""
    usual = 0.02  # beside busy cores
    for name in ("walk_dqn.py", "walk_ppo.py"):
        for slow in range(8):
            found, _ = measured(name, lambda threads: 0.01, slow_cores=[slow])
            learner = found.learners[0]
            assert usual <= learner.update_seconds < 1.25 * usual
            assert learner.contention == pytest.approx(usual / 0.01)  # alone on the same core
            assert 0.1 < found.unevenness < 0.5
        found, _ = measured(name, lambda threads: 0.01)
        assert found.unevenness == 0.0


@pytest.mark.parametrize("name", ["walk_dqn.py", "walk_ppo.py"])
@pytest.mark.parametrize("slow", [range(4), range(4, 8), range(2, 6)])
def test_where_half_of_the_cores_are_slow_learners_count_by_what_they_make_together(
    measured, name, slow
):
    """A group takes turns on one core, and there is a group on every core."""
    found, _ = measured(name, lambda threads: 0.01, slow_cores=slow)
    assert found.learners[0].update_seconds == pytest.approx(0.02 * 2 / (1 + 1 / 3))


@pytest.mark.parametrize(("cores", "seconds"), [(1, 600.0), (8, 0.0)])
def test_nothing_is_made_of_neighbours_that_were_never_absent(measured, cores, seconds):
    """On a single core there are none, and a probe that is late knows of none."""
    found, stages = measured("walk_dqn.py", lambda threads: 0.01, cores=cores, seconds=seconds)
    assert {cost.contention for cost in found.learners} == {1.0}
    assert seconds or len(stages) == 1


def test_a_probe_that_is_late_takes_the_first_look_for_the_learner(measured):
    found, stages = measured("walk_ppo.py", lambda threads: 0.01, seconds=0.0)
    assert found.learners[0].update_seconds == pytest.approx(0.01)
    assert len(stages) == 2 and len(found.actors) == 1


def test_all_threads_of_a_child_move_on_with_it():
    """Torch has a thread of its own for the GPU, which stayed where the first task had been."""
    done, before = threading.Event(), os.sched_getaffinity(0)
    thread = threading.Thread(target=done.wait, daemon=True)
    thread.start()
    try:
        probe_process._sit_on([max(before)])
        assert os.sched_getaffinity(thread.native_id) == {max(before)} == os.sched_getaffinity(0)
    finally:
        done.set()
        probe_process._sit_on(sorted(before))


def test_a_slow_update_leaves_time_for_less(measured):
    """Every stage waits for three of them."""
    _, quick = measured("walk_ppo.py", lambda threads: 0.01, seconds=30.0)
    _, slow = measured("walk_ppo.py", lambda threads: 20.0, seconds=30.0)
    assert len(slow) == 2 < len(quick)


def test_what_matters_most_is_measured_again_while_there_is_time(measured):
    _, stages = measured("walk_dqn.py", lambda threads: 0.01)
    assert (
        stages.count([("learner", 1, 1)]) == 2 + probe_children.MOST_AGAIN
    )  # one with larger batches
    _, stages = measured("walk_ppo.py", lambda threads: 0.01)
    assert stages.count([("learner", 1, 1)]) == 3 + probe_children.MOST_AGAIN  # and a first look


def test_learners_that_do_not_fit_together_are_measured_one_at_a_time(measured):
    found, stages = measured("walk_dqn.py", lambda threads: 0.01, most=1)
    assert found.learners[0].contention == pytest.approx(2.0)
    assert max(map(len, stages)) == 8 and len(found.actors) > 1


def test_fewer_learners_that_fit_on_a_gpu_are_measured(measured):
    found, _ = measured("walk_dqn.py", lambda threads: 0.01, gpu="a GPU", most=4)
    assert [n for n, _ in found.learners[0].on_gpu] == [2, 4]


def test_larger_batches_that_do_not_fit_are_left_out(measured, monkeypatch):
    usual = probing.enlarged

    def enlarged(job, factor):
        return dataclasses.replace(usual(job, factor), name="too large")

    monkeypatch.setattr(probing, "enlarged", enlarged)
    found, _ = measured("walk_dqn.py", lambda threads: 0.01, full="too large")
    assert len(found.learners) == 1


def test_a_learner_is_measured_with_larger_batches_too(measured):
    for name in ("walk_dqn.py", "walk_ppo.py"):
        found, _ = measured(name, lambda threads: 0.01)
        usual, larger = found.learners
        assert larger.batch == 4 * usual.batch and larger.contention == usual.contention
        assert larger.draw_seconds == pytest.approx(usual.draw_seconds)  # beside busy cores, too


def test_actors_that_take_turns_sleep_while_the_learner_learns(measured):
    found, _ = measured("walk_ppo.py", lambda threads: 0.01)
    beside = found.learners[0].contention  # other groups
    assert all(cost.step_seconds == pytest.approx(beside * 1.5e-4) for cost in found.actors)
    together, _ = measured("walk_dqn.py", lambda threads: 0.01)
    assert all(cost.step_seconds == pytest.approx(1e-4) for cost in together.actors)


@pytest.mark.parametrize("name", ["walk_dqn.py", "walk_ppo.py"])
def test_learners_of_one_gpu_are_measured_together(measured, name):
    found, stages = measured(name, lambda threads: 0.01, gpu="a GPU")
    learner = found.learners[0]
    assert [n for n, _ in learner.on_gpu] == [2, 4, 8]
    assert [("learner", 1, 1)] * 8 in stages
    ratios = [times / n for n, times in learner.on_gpu]  # that their cores are busy is not in it
    assert ratios == pytest.approx([1.0] * 3)


def test_a_learner_waits_for_the_slowest_actor_where_they_take_turns(measured):
    found, _ = measured("walk_ppo.py", lambda threads: 0.01, slow_cores=[1])
    crowded = min(found.actors, key=lambda cost: cost.envs)  # on all cores
    assert crowded.step_seconds == pytest.approx(2 * 3 * 1.5e-4)
    at_once, _ = measured("walk_dqn.py", lambda threads: 0.01, slow_cores=[1])
    assert all(cost.step_seconds < 1.5e-4 for cost in at_once.actors)


def test_a_learner_that_takes_turns_comes_before_other_environments(measured):
    """It counts for every split, and a probe may have no time left."""
    _, stages = measured("walk_ppo.py", lambda threads: 0.01)
    kinds = [stage[0][0] for stage in stages[:6]]
    assert kinds == ["learner", "actor", "learner", "learner", "learner", "actor"]
    assert list(map(len, stages[:5])) == [1, 2, 1, 8, 1]  # alone, among others, with two cores


@pytest.mark.parametrize("name", ["walk_dqn.py", "walk_ppo.py"])
def test_more_cores_are_compared_with_fewer_on_the_same(measured, name):
    """Two quick ones once seemed to be a gain over a slow one."""
    for slow in range(8):
        found, _ = measured(name, lambda threads: 0.01, slow_cores=[slow])
        assert {cost.cores for cost in found.learners} == {1}


@pytest.mark.parametrize("slow", [1, 6])  # where learners with more cores sit, and elsewhere
def test_what_more_cores_save_is_of_what_one_costs_on_the_usual_core(measured, slow):
    found, _ = measured("walk_ppo.py", lambda threads: 0.01 / threads, slow_cores=[slow])
    one, two = (
        next(cost.update_seconds for cost in found.learners if cost.cores == n) for n in (1, 2)
    )
    assert two == pytest.approx(one / 2)


def test_what_other_groups_cost_is_known_where_roles_take_turns(measured):
    found, _ = measured("walk_ppo.py", lambda threads: 0.01 / threads)
    assert [cost.contention for cost in found.learners] == pytest.approx([2.0] * 5)
    assert found.learners[0].update_seconds == pytest.approx(0.02)


def test_a_learner_does_not_sleep_for_longer_than_makes_a_difference(measured):
    """Rollouts of minutes would be waited for three times in every stage."""
    pauses = []
    measured("walk_ppo.py", lambda threads: 20.0, pauses=pauses)
    assert 0 < max(pauses) <= stages.LONGEST_PAUSE


def test_pauses_are_in_the_time_that_a_stage_takes(monkeypatch):
    monkeypatch.setattr(probe_children.time, "monotonic", lambda: 0.0)
    table = probe_children.TimeLeft(20.0, n_stages=8, n_later=2)
    assert not table.is_late()
    table.expect(update_seconds=1.0, pause=1.0)
    assert not table.is_late()
    table.expect(update_seconds=1.0, pause=4.0)  # three times, and two more stages at the end
    assert table.is_late()
    table.spend_all()
    assert not table.is_late() and table.is_late(times=2)


def test_what_others_do_meanwhile_is_what_neither_sleeps_nor_is_our_own(monkeypatch):
    from tianji.strategy.probe import this_machine

    def at(now, idled, own):
        monkeypatch.setattr(this_machine.time, "monotonic", lambda: now)
        monkeypatch.setattr(this_machine, "idle_seconds", lambda cores: idled)
        monkeypatch.setattr(this_machine, "_own_seconds", lambda: own)

    at(100.0, 500.0, 7.0)
    others = this_machine.Others((0, 1, 2, 3))
    at(110.0, 512.0, 25.0)  # of 40 s on four cores 12 were idle, and 18 ours
    assert others.used() == pytest.approx(1.0)
    at(110.0, 512.0, 60.0)
    assert others.used() == 0.0
    at(110.0, None, 25.0)
    assert others.used() == 0.0  # nobody says
