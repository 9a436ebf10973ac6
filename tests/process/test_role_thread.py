"""A buffer beside its learner: in a thread of its own, and back."""

import sys
import threading
import time

import numpy as np
import pytest
from commands import TASKS, eventually

from tianji import config
from tianji.core.counts import Count
from tianji.engines.role_thread import SWITCH_SECONDS, Apart
from tianji.engines.worker_loop import Loop
from tianji.job import factory
from tianji.job.advice import Advice, Listener, advise
from tianji.job.job import prepare
from tianji.job.wiring import channels_of
from tianji.observe.capacity import capacity
from tianji.observe.rates import shares
from tianji.roles.role import Role
from tianji.roles.role_specs import roles_of
from tianji.transports.local import LocalTransport

pytestmark = pytest.mark.process


class Counting(Role):
    """Has something to do whenever it is allowed to; `inside` while it does."""

    def __init__(self):
        super().__init__("buffer-0.0")
        self.n, self.inside, self.allowed = 0, False, True
        self.n_refused = 0

    def step(self):
        self.inside = True
        time.sleep(0.0005)
        self.n += self.allowed
        self.n_refused += not self.allowed
        self.inside = False
        return self.allowed


@pytest.fixture
def beside():
    role = Counting()
    apart = Apart(role)
    yield role, apart
    apart.back()


def test_it_takes_turns_without_being_given_any(beside):
    role, apart = beside
    eventually(lambda: role.n > 20)
    with apart.held():
        assert role.counts[Count.APART_SECONDS] > 0.005
        assert role.counts[Count.BUSY_SECONDS] == role.counts[Count.APART_SECONDS]


def test_whoever_holds_it_finds_it_between_two_steps(beside):
    role, apart = beside
    for _ in range(50):
        with apart.held():  # also one that never waits by itself lets others in
            before = role.n
            assert not role.inside
            time.sleep(0.001)
            assert role.n == before and not role.inside


def test_it_is_told_when_there_is_something_to_do(beside, monkeypatch):
    role, apart = beside
    monkeypatch.setattr("tianji.engines.role_thread.NAP_SECONDS", 600.0)
    with apart.held():
        role.allowed, before = False, role.n
    eventually(lambda: role.n_refused)  # and now it naps for long
    role.allowed = True
    time.sleep(0.01)
    assert role.n == before
    apart.tell()
    eventually(lambda: role.n > before)


def test_called_back_it_takes_no_turn_any_more():
    usual, role = sys.getswitchinterval(), Counting()
    apart = Apart(role)
    assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)
    apart.back()
    before = role.n
    time.sleep(0.01)
    assert role.n == before and sys.getswitchinterval() == pytest.approx(usual)


def test_what_a_step_raises_is_raised_where_the_others_take_theirs():
    class Broken(Counting):
        def step(self):
            raise MemoryError("no room")

    role = Broken()
    apart = Apart(role)
    with pytest.raises(MemoryError, match="no room"):
        eventually(lambda: apart.check() is not None)
    apart.back()


# ------------------------------------------------------------------------ in the loop of a process


class Ports(LocalTransport):
    """All channels of a job in this process, so that a thread of a test may be another process."""

    def __init__(self, specs):
        super().__init__(specs)
        self.shared = self

    def wait(self, seconds):
        time.sleep(min(seconds, 0.001))


class Group:
    """A learner and its buffer in a loop, an actor in another thread."""

    def __init__(self, *overrides, name="echo_dqn.py"):
        made = config.load(TASKS / name, overrides)
        env = factory.make_env(made)
        env.close()
        self.job = prepare(made, env.spec)
        self.ports = Ports(channels_of(self.job))
        self.control = self.ports.outbox("control")
        specs = roles_of(made)
        build = {r.name: factory.build(r, self.job, self.ports) for r in specs}
        self.actor, self.buffer = build["actor-0.0"], build["buffer-0.0"]
        self.learner = build["learner-0.0"]

    def run(self, look, updates):
        """`look` is called about as often as a run looks at advice."""
        saver = type("Saver", (), {"look": look, "finish": lambda self: None})()
        loop = Loop([self.learner, self.buffer], self.ports, saver)
        acting = threading.Thread(target=self.act)
        acting.start()
        ending = threading.Thread(target=self.end, args=(updates,))
        ending.start()
        try:
            loop.run()
        finally:
            self.control.close()
            self.actor.done = True
            acting.join()
            ending.join()
        return loop

    def act(self):
        while not self.actor.done:
            if not self.actor.step():
                time.sleep(0.0005)

    def end(self, updates):
        eventually(lambda: self.learner.version >= updates or self.actor.done)
        self.control.close()


def test_a_buffer_that_moves_to_and_fro_loses_and_doubles_nothing(monkeypatch):
    monkeypatch.setattr("tianji.engines.worker_loop.PULSE_SECONDS", 0.005)
    group, moves = Group(), []

    def look(saver):
        group.buffer.apart = not group.buffer.apart
        moves.append(threading.active_count())

    group.run(look, updates=300)
    buffer, learner, job = group.buffer, group.learner, group.job
    assert len(moves) > 5 and learner.version >= 300
    assert buffer.counts[Count.APART_SECONDS] > 0
    assert buffer.counts[Count.APART_SECONDS] < buffer.counts[Count.BUSY_SECONDS]
    assert learner.version <= buffer.handed <= learner.version + 2
    # The balance was held all the time, as without any thread.
    per_step = job.ratio / job.sampling.batch_units  # batches
    ahead = job.ahead * per_step  # and as much may have come at once
    owed = (buffer.received - job.sampling.warmup) * per_step
    assert abs(buffer.handed - owed) <= 1 + 2 * ahead
    assert buffer.received <= group.actor.counts[Count.PRODUCED]
    assert all(role.done for role in (buffer, learner))
    assert not any(thread.name == "buffer-0.0" for thread in threading.enumerate())


def test_an_error_of_a_buffer_beside_its_learner_ends_the_process():
    group = Group()

    def look(saver):
        group.buffer.apart = True
        if group.buffer.counts[Count.APART_SECONDS]:
            group.buffer.store.draw = broken

    def broken(out):
        raise RuntimeError("the store is broken")

    with pytest.raises(RuntimeError, match="the store is broken"):
        group.run(look, updates=10**9)
    assert not any(thread.name == "buffer-0.0" for thread in threading.enumerate())


def test_an_error_of_the_last_step_beside_the_learner_is_not_lost():
    group, steps = Group(), []

    def failing():
        steps.append(1)
        time.sleep(0.05)  # it is called back meanwhile
        raise RuntimeError("the last one")

    loop = Loop([group.learner, group.buffer], group.ports)
    group.buffer.step = failing
    group.buffer.apart = True
    loop._move(group.buffer)
    eventually(lambda: steps)
    group.buffer.apart = False
    with pytest.raises(RuntimeError, match="the last one"):
        loop._move(group.buffer)


def test_in_the_middle_of_an_update_nobody_waits_for_the_buffer():
    group = Group()
    loop = Loop([group.learner, group.buffer], group.ports)
    group.buffer.apart = True
    loop._move(group.buffer)
    try:
        with loop._apart.held():  # as if it were at a long step
            group.learner.exchange = type("Exchange", (), {"running": True})()
            loop._pulse()  # or this would never return
            assert loop._next_pulse == 0.0
    finally:
        loop._call_back()


def test_time_that_the_learner_waits_for_the_buffers_step_is_idle():
    group = Group()

    def long_step():
        time.sleep(0.03)
        return True

    loop = Loop([group.learner, group.buffer], group.ports)
    group.buffer.step = long_step
    group.buffer.apart = True
    loop._move(group.buffer)
    for _ in range(5):
        loop._pulse()
        time.sleep(0.001)
    loop._call_back()
    assert group.learner.counts[Count.IDLE_SECONDS] > 0.02
    assert group.buffer.counts[Count.IDLE_SECONDS] == 0  # it was at work


def test_a_buffer_goes_where_it_is_told_to():
    group = Group()
    everybody = roles_of(group.job.config)
    listener = Listener([group.learner, group.buffer], group.ports.inbox("advice"), everybody)
    outbox = group.ports.outbox("advice")
    for apart in (True, False):
        advise(outbox, everybody, Advice(apart=["buffer-0.0"] if apart else []))
        listener.look()
        assert group.buffer.apart is apart and not group.learner.apart


# ---------------------------------------------------------------------------------- what is counted

HOMES = {"learner-0.0": "learner-0.0", "buffer-0.0": "learner-0.0"}


def counted(**seconds):
    """A second in which a learner made 10 updates of 100 samples."""
    after = {name: np.zeros(len(Count)) for name in HOMES}
    after["learner-0.0"][[Count.CONSUMED, Count.VERSION]] = 1_000.0, 10.0
    after["learner-0.0"][Count.BUSY_SECONDS] = seconds["learner"]
    after["learner-0.0"][Count.IDLE_SECONDS] = seconds["idle"]
    after["buffer-0.0"][Count.BUSY_SECONDS] = seconds["buffer"]
    after["buffer-0.0"][Count.APART_SECONDS] = seconds["apart"]
    after["buffer-0.0"][Count.PUSHED] = 10.0
    before = {name: np.zeros(len(Count)) for name in HOMES}
    return before, after, HOMES


def test_in_turns_the_work_of_both_counts_and_beside_each_other_that_of_the_slower_one():
    in_turns = capacity(*counted(learner=0.6, buffer=0.4, apart=0.0, idle=0.0), 1.0, HOMES)
    beside = capacity(*counted(learner=0.6, buffer=0.4, apart=0.4, idle=0.4), 1.0, HOMES)
    slower = capacity(*counted(learner=0.6, buffer=0.8, apart=0.8, idle=0.4), 1.0, HOMES)
    rates = [found.learning for found in (in_turns, beside, slower)]
    assert rates == pytest.approx([1_000.0, 1_000 / 0.6, 1_250.0])
    assert in_turns.batch_seconds == pytest.approx(0.04)


def test_time_that_a_buffer_worked_beside_its_learner_is_no_time_of_their_process():
    spent = shares(*counted(learner=0.6, buffer=0.3, apart=0.3, idle=0.4))
    assert spent["learner-0.0"].busy == pytest.approx(0.6)
    assert spent["learner-0.0"].idle == pytest.approx(0.4)
    assert spent["buffer-0.0"].busy == pytest.approx(0.3)
