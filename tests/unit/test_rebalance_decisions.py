"""Decisions about who works, against loads that are known."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tianji.strategy.rebalance import decisions, trial_changes
from tianji.strategy.rebalance.decisions import Balancer
from tianji.strategy.rebalance.trial_changes import Change, Decision, Reading


class Load:
    """Actors that make `each` steps/s and a learner that can use `learner` of them.

    Every awake actor costs the learner `contention` of its speed.
    """

    def __init__(
        self, n, each, learner, contention=0.0, awake=None, thread_gain=0.0, buffer_gain=0.0
    ):
        self.n, self.each, self.learner, self.contention = n, each, learner, contention
        self.awake = n if awake is None else awake
        self.threads, self.thread_gain = 1, thread_gain
        self.apart, self.buffer_gain = 0, buffer_gain
        self.free_cores, self.update_seconds, self.batch_seconds = 0.0, 0.0, 0.0
        self.balancer, self.now, self.decisions = Balancer(), 0.0, []

    def reading(self):
        speed = self.learner * (1 + self.thread_gain * (self.threads - 1))
        speed *= 1 + self.buffer_gain * self.apart
        acting, learning = self.awake * self.each, speed / (1 + self.contention * self.awake)
        idle = max(0.0, 1 - acting / learning)
        here = (self.awake, self.n - self.awake, acting, learning, idle)
        free = max(0.0, self.free_cores - (self.threads - 1) - self.apart)
        took = self.update_seconds, self.batch_seconds
        return Reading(*here, self.threads, free, *took, self.apart)

    def run(self, seconds):
        for _ in range(seconds):
            self.now += 1.0
            if (decision := self.balancer.decide(self.reading(), self.now)) is not None:
                self.follow(decision)
        return self

    def follow(self, decision):
        self.decisions.append(decision)
        if decision.kind is Change.THREADS:
            assert decision.before == self.threads
            self.threads = decision.after
        elif decision.kind is Change.BUFFER:
            assert decision.before == self.apart
            self.apart = decision.after
        else:
            assert decision.before == self.awake
            assert 1 <= decision.after <= self.n
            self.awake = decision.after

    @property
    def kinds(self):
        return [str(decision.kind) for decision in self.changes]

    @property
    def changes(self):
        return [decision for decision in self.decisions if decision.before != decision.after]


STEADY = Reading(4, 4, acting=1_300.0, learning=1_000.0, idle=0.0)


@pytest.mark.parametrize(
    ("reading", "wanted"),
    [
        (STEADY, 4),  # between the margins
        (replace(STEADY, acting=1_050.0), 4),  # little to spare, but the learner does not wait
        (replace(STEADY, acting=1_050.0, idle=0.06), 5),  # it begins to
        (replace(STEADY, idle=0.16), 5),  # it waits, whatever the capacities say
        (replace(STEADY, acting=400.0, idle=0.6), 8),  # 13 would be needed
        (replace(STEADY, acting=900.0, idle=0.1), 6),  # 225 each
        (replace(STEADY, acting=2_100.0), 3),  # 525 each: three make 1,575
        (replace(STEADY, acting=1_900.0), 4),  # three would make 1,425
        (replace(STEADY, acting=90_000.0), 2),  # half at most
        (replace(STEADY, acting=90_000.0, idle=0.06), 4),  # nobody is paused while it waits
        (replace(STEADY, acting=0.0, idle=1.0), 8),  # nothing came at all
        (replace(STEADY, acting=0.0, learning=0.0), 4),  # nor is known
        (replace(STEADY, n_paused=0, acting=400.0, idle=0.6), 4),  # nobody is left to wake
        (replace(STEADY, n_awake=1, acting=90_000.0), 1),  # nor to pause
        (replace(STEADY, n_awake=0, acting=0.0, idle=1.0), 1),  # the last one was lost
        (replace(STEADY, n_awake=0, n_paused=0, acting=0.0, idle=1.0), 0),  # all were
    ],
)
def test_how_many_should_be_awake(reading, wanted):
    assert Balancer()._wanted_awake(reading, 0.0) == wanted


def test_at_least_so_many_stay_awake():
    load = Load(8, 5_000.0, 1_000.0)
    load.balancer = Balancer(3)
    assert load.run(60).awake == 3


def test_one_reading_changes_nothing():
    decide = Balancer().decide
    surplus, shortage = replace(STEADY, acting=9_000.0), replace(STEADY, idle=0.5)
    assert not any(decide(surplus, now) for now in (10.0, 11.0))
    assert decide(STEADY, 12.0) is None
    assert not any(decide(surplus, now) for now in (13.0, 14.0))
    assert decide(surplus, 15.0).kind is Change.PAUSE
    assert decide(shortage, 16.0) is None
    assert decide(shortage, 17.0).kind is Change.WAKE  # no need to wait for the next decision


def test_a_decision_says_why_in_numbers():
    load = Load(8, 1_200.0, 1_000.0).run(10)
    assert load.decisions[0] == Decision(
        Change.PAUSE,
        8,
        4,
        "8 actors could make 9,600 steps/s with a core each, the learner can use 1,000, "
        "the learner idles 0 %",
    )
    load.each = 100.0
    load.run(4)
    assert load.decisions[-1].why == (
        "the learner idles 80 %: 2 actors could make 200 steps/s with a core each, "
        "the learner can use 1,000"
    )
    assert (load.decisions[-1].before, load.decisions[-1].after) == (2, 8)


def test_pauses_keep_their_distance():
    times, load = [], Load(64, 1_000.0, 500.0)
    for _ in range(120):
        before = load.awake
        load.run(1)
        times += [load.now] if load.awake != before else []
    assert load.awake == 1 and len(times) == 6
    assert min(b - a for a, b in pairwise(times)) >= decisions.LEAST_SECONDS


LOADS = st.fixed_dictionaries(
    {
        "n": st.integers(1, 40),
        "each": st.floats(1.0, 5_000.0),
        "learner": st.floats(10.0, 50_000.0),
        "contention": st.sampled_from([0.0, 0.02, 0.2, 1.0]),
    }
)


@settings(max_examples=200)
@given(LOADS, st.data())
def test_a_constant_load_comes_to_rest_from_both_sides(values, data):
    begun = data.draw(st.integers(1, values["n"]))
    load = Load(**values, awake=begun).run(600)
    assert load.awake >= 1
    before = len(load.decisions)
    load.run(3_000)
    # A pause that is a mistake is tried again after 30 s, 60 s, ...: two decisions each time.
    assert len(load.decisions) - before <= (0 if values["contention"] == 0 else 8)
    seen = load.reading()
    assert seen.idle <= decisions.WAKE_IDLE or load.awake == load.n
    if values["contention"] == 0 and load.awake > 1:  # nobody works for nothing
        assert (load.awake - 1) * seen.acting / load.awake < 1.5 * seen.learning * (1 + 1e-6)


@settings(max_examples=100)
@given(LOADS, st.lists(st.tuples(st.floats(0.1, 10.0), st.floats(0.1, 10.0)), max_size=6))
def test_whatever_changes_the_learner_does_not_starve(values, changes):
    load = Load(**values)
    for slower, learner in changes:
        load.each, load.learner = values["each"] * slower, values["learner"] * learner
        load.run(60)
        assert load.reading().idle <= decisions.WAKE_IDLE or load.awake == load.n


def test_an_environment_that_becomes_slower_has_its_actors_back_and_then_not():
    load = Load(8, 5_000.0, 1_000.0).run(30)
    assert load.awake == 1 and set(load.kinds) == {"pause"}
    load.each = 200.0
    load.run(5)
    assert load.awake == 7  # 1,400 steps/s: enough and a third
    load.each = 5_000.0
    load.run(30)
    assert load.awake == 1  # it was no mistake to pause them
    assert load.kinds.count("wake") == 1


def test_a_pause_that_is_a_mistake_is_made_ever_more_rarely():
    class Bursts(Load):
        """One actor alone makes the learner wait, whatever it could make."""

        def reading(self):
            seen = super().reading()
            return replace(seen, idle=0.3) if self.awake == 1 else seen

    load = Bursts(2, 5_000.0, 1_000.0).run(3_600)
    assert load.awake == 2
    assert load.kinds.count("pause") == load.kinds.count("wake") <= 7


def spare(**more):
    load = Load(4, 1_000.0, 1_000.0, awake=2, **more)
    load.free_cores, load.update_seconds = 0.9, 0.02
    return load


def test_a_thread_that_gains_is_kept():
    load = spare(thread_gain=0.4).run(6)
    assert load.threads == 2
    load.run(100)
    assert load.threads == 2 and load.kinds.count("threads") == 1
    kept = load.decisions[-1]  # that it stays is said too
    assert (kept.before, kept.after) == (2, 2)
    assert kept.why == "1,400 steps/s can be used with 2, 1,000 with 1"


def test_a_thread_that_gains_nothing_is_taken_back():
    load = spare(thread_gain=0.03).run(30)
    assert load.threads == 1 and load.kinds == ["threads", "threads"]
    assert load.decisions[1].why == "1,030 steps/s can be used with 2, 1,000 with 1"
    load.run(80)
    assert load.kinds == ["threads", "threads"]  # not tried again so soon


def test_a_thread_that_does_not_earn_its_core_any_more_is_taken_back():
    load = spare(thread_gain=0.4).run(20)
    load.free_cores, load.thread_gain = 0.0, -0.5  # somebody else uses the second core
    load.run(20)
    assert load.threads == 1


class Threads(Load):
    """A learner whose speed is a list, by the number of threads; cores are free at first."""

    def __init__(self, *speeds):
        super().__init__(4, 5_000.0, speeds[0], awake=1)
        self.speeds, self.free_cores, self.update_seconds = speeds, len(speeds) - 0.9, 0.02

    def reading(self):
        return replace(super().reading(), learning=self.speeds[self.threads - 1])

    @property
    def threads_seen(self):
        return [decision.after for decision in self.changes]


def test_only_the_thread_that_lost_its_core_is_taken_back():
    load = Threads(1_000.0, 1_800.0, 2_500.0).run(40)
    assert load.threads_seen == [2, 3]
    load.speeds, load.free_cores = (1_000.0, 1_800.0, 1_700.0), 0.0
    load.run(60)
    assert load.threads_seen == [2, 3, 2]  # two still earn what they did


def test_threads_that_all_lost_their_worth_are_taken_back_one_after_the_other():
    load = Threads(1_000.0, 1_800.0, 2_500.0).run(40)
    load.speeds = (1_000.0, 900.0, 800.0)
    load.run(20)
    assert load.threads_seen == [2, 3, 2, 1]
    load.speeds = (1_000.0, 1_800.0, 2_500.0)
    load.run(int(trial_changes.RETRY_SECONDS) + 20)  # one wait for both
    assert load.threads_seen == [2, 3, 2, 1, 2, 3]


def drawing(**more):
    load = spare(**more)
    load.batch_seconds = 0.008
    return load


def test_a_buffer_that_works_faster_beside_its_learner_stays_there():
    load = drawing(buffer_gain=0.3).run(100)
    assert load.apart == 1 and load.kinds == ["buffer"]
    assert load.decisions[0].why == (
        "to see what it gains: 1,000 steps/s can be used, an update takes 20.0 ms and "
        "a batch 8.0 ms, 0.9 cores are free"
    )


def test_a_buffer_that_does_not_goes_back_into_its_learners_turns_and_a_thread_is_tried():
    load = drawing(thread_gain=0.4).run(100)
    assert load.apart == 0 and load.threads == 2
    assert load.kinds == ["buffer", "buffer", "threads"]  # one does not wait for the other
    assert load.decisions[1].why == "1,000 steps/s can be used with 1, 1,000 with 0"


def test_a_learner_that_is_faster_than_its_buffer_gets_no_thread():
    load = drawing(buffer_gain=0.3, thread_gain=0.4)
    load.free_cores, load.batch_seconds = 2.9, 0.03
    assert load.run(100).kinds == ["buffer"]


def test_a_buffer_that_loses_its_core_goes_back():
    load = drawing(buffer_gain=0.3).run(20)
    load.buffer_gain, load.free_cores = -0.2, 0.0
    assert load.run(20).apart == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("free_cores", 0.5), ("batch_seconds", 0.0009), ("batch_seconds", 0.0), ("each", 200.0)],
)
def test_a_buffer_stays_where_nothing_is_to_be_gained(name, value):
    load = drawing(buffer_gain=0.3)
    load.update_seconds = 0.0015
    setattr(load, name, value)
    assert "buffer" not in load.run(60).kinds


def test_a_buffer_stays_whose_batches_take_next_to_no_time_beside_an_update():
    load = drawing(buffer_gain=0.3)
    load.update_seconds = 0.1
    assert "buffer" not in load.run(60).kinds


def test_a_thread_that_was_not_to_blame_is_put_back():
    load = Threads(1_000.0, 1_800.0).run(30)
    load.speeds, load.free_cores = (600.0, 1_100.0), 0.0  # somebody else is at work
    load.run(60)
    assert load.threads_seen == [2, 1, 2]
    assert load.decisions[-1].why == "600 steps/s can be used with 1, 1,100 with 2"
    load.speeds = (600.0, 500.0)
    load.run(20)
    assert load.threads_seen == [2, 1, 2, 1]  # measured by what it brought last


def test_no_thread_is_tried_without_a_core_or_for_small_updates():
    for name, value in (("free_cores", 0.5), ("update_seconds", 0.001)):
        load = spare(thread_gain=0.4)
        setattr(load, name, value)
        assert not load.run(60).decisions
