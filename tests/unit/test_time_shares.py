"""Where the time of a process went adds up to all of it, by roles whose costs are known."""

import numpy as np
import pytest

from tianji.core.channel import ChannelSpec
from tianji.core.counts import Count, report_schema, whole_of
from tianji.engines import worker_loop
from tianji.engines.worker_loop import Loop
from tianji.observe.rates import at_start, shares
from tianji.observe.watch import Progress
from tianji.roles.role import Role
from tianji.roles.role_specs import Kind
from tianji.transports.local import LocalTransport


class Clock:
    """Stands still unless somebody says that time has passed."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Costly(Role):
    """Works every so many turns, which takes its time; the others take a moment."""

    def __init__(self, name, clock, seconds, every, looking=0.0):
        super().__init__(name)
        self.clock, self.seconds, self.every, self.looking = clock, seconds, every, looking
        self.n = 0

    def step(self):
        self.n += 1
        self.done = self.n == 600
        works = self.n % self.every == 0
        self.clock.sleep(self.seconds if works else self.looking)
        return works


class Sleeper(LocalTransport):
    """A transport whose waits take as long as they may."""

    def __init__(self, specs, clock):
        super().__init__(specs)
        self.clock, self.shared, self.slept = clock, self, 0.0

    def wait(self, timeout_seconds):
        self.clock.sleep(timeout_seconds)
        self.slept += timeout_seconds


def spent(roles, clock, monkeypatch):
    monkeypatch.setattr(worker_loop, "time", clock)
    specs = [ChannelSpec(f"report {role.name}", role.name, (), report_schema()) for role in roles]
    ports, began = Sleeper(specs, clock), clock.now
    Loop(roles, ports, clock=clock.monotonic).run()
    before = {role.name: np.zeros(len(Count)) for role in roles}
    after = {role.name: role.counts for role in roles}
    found = shares(before, after, dict.fromkeys(after, "here"))
    return found, clock.now - began, ports.slept


@pytest.mark.parametrize("looking", [0.0, 0.004])
def test_busy_idle_and_overhead_add_up_to_all_of_the_time(monkeypatch, looking):
    clock = Clock()
    roles = [
        Costly("buffer-0.0", clock, 0.010, every=3, looking=looking),
        Costly("learner-0.0", clock, 0.030, every=5, looking=looking),
    ]
    found, whole, slept = spent(roles, clock, monkeypatch)
    buffer, learner = found["buffer-0.0"], found["learner-0.0"]
    everything = buffer.busy + learner.busy + learner.idle + learner.overhead
    assert everything == pytest.approx(1.0)
    assert whole_of([role.counts for role in roles]) == pytest.approx(whole, rel=0.01)
    assert buffer.busy == pytest.approx(200 * 0.010 / whole, rel=0.02)
    assert learner.busy == pytest.approx(120 * 0.030 / whole, rel=0.02)
    assert learner.idle == pytest.approx(slept / whole, rel=0.02)
    in_vain = (400 + 480) * looking
    assert learner.overhead == pytest.approx(in_vain / whole, abs=0.01)


def test_a_role_that_works_all_the_time_has_nothing_else(monkeypatch):
    clock = Clock()
    found, _, _ = spent([Costly("actor-0.0", clock, 0.01, every=1)], clock, monkeypatch)
    assert found["actor-0.0"][:4] == pytest.approx((1.0, 0.0, 0.0, 0.0))
    assert not any(found["actor-0.0"][4:])


class Resting(Costly):
    """Is told to rest for 100 of its turns, ten at a time."""

    def step(self):
        self.paused = self.n // 10 % 6 == 4
        if self.paused:
            self.n += 1
            return False
        return super().step()

    def waits_for(self):
        return Count.WAITED_ROOM


def test_the_time_of_an_actor_that_rests_now_and_then_adds_up(monkeypatch):
    clock = Clock()
    actor = Resting("actor-0.0", clock, 0.01, every=5, looking=0.002)
    found, whole, slept = spent([actor], clock, monkeypatch)
    share = found["actor-0.0"]
    assert share.busy + share.wait_room + share.paused + share.overhead == pytest.approx(1.0)
    assert share.wait_room == share.idle == pytest.approx(slept / whole, rel=0.02)
    assert share.paused == pytest.approx(100 * worker_loop.REST_SECONDS / whole, rel=0.02)
    assert share.busy == pytest.approx(100 * 0.01 / whole, rel=0.02)


class Starved(Costly):
    """Lacks one thing and then another."""

    def waits_for(self):
        return Count.WAITED_TRAJECTORIES if self.n < 300 else Count.WAITED_ROOM


def test_a_buffer_with_a_process_of_its_own_says_what_it_waited_for(monkeypatch):
    clock = Clock()
    found, whole, slept = spent([Starved("buffer-0.0", clock, 0.01, every=3)], clock, monkeypatch)
    share = found["buffer-0.0"]
    waits = share.wait_trajectories, share.wait_room
    assert share.busy + sum(waits) + share.overhead == pytest.approx(1.0)
    assert share.busy == pytest.approx(200 * 0.01 / whole, rel=0.02)
    assert waits == pytest.approx([slept / 2 / whole] * 2, rel=0.05)
    assert share.row(Kind.BUFFER).keys() == {
        *("busy", "idle", "paused", "overhead", "wait_trajectories", "wait_room")
    }


def test_what_was_waited_for_before_all_were_ready_is_no_time_of_training():
    counts = np.zeros(len(Count))
    counts[[Count.READY_AT, Count.IDLE_SECONDS]] = 10.0, 5.0
    counts[[Count.WAITED_WEIGHTS, Count.WAITED_ROOM, Count.BUSY_SECONDS]] = 3.0, 2.0, 5.0
    progress = Progress({"actor-0.0": counts}, started_at=12.0)
    share = shares(at_start(progress), progress.counts, {"actor-0.0": "actor-0.0"})["actor-0.0"]
    assert (share.wait_weights, share.wait_room) == pytest.approx((1 / 8, 2 / 8))
    assert share.idle == pytest.approx(3 / 8)
