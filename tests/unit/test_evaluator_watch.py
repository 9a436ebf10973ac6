"""When an evaluator is taken to hang: the launcher's part, with a process that is played."""

import signal

import pytest
from commands import TASKS

from tianji.config import load
from tianji.core.counts import Count
from tianji.engines import evaluator_watch
from tianji.engines.evaluator_watch import EvaluatorWatch
from tianji.engines.live_counts import counts_channels, live_counts
from tianji.engines.worker_loop import shared_channels
from tianji.job.factory import make_env
from tianji.job.job import prepare
from tianji.roles.role_specs import evaluator_of, homes_of
from tianji.transports.shm import ShmTransport

HOME = "evaluator-0.0"


class Process:
    pid = 0

    def __init__(self):
        self.signals = []

    def poll(self):
        return None

    def send_signal(self, number):
        self.signals.append(number)


class Stage:
    """A watch, an evaluator that counts when it is told to, and a clock that is set by hand."""

    def __init__(self, monkeypatch):
        config = load(TASKS / "walk_ppo.py", ["exp.eval_step=100"])
        job = prepare(config, make_env(config).spec)
        self.now, self.queued = 1000.0, 0.0
        monkeypatch.setattr(evaluator_watch.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(evaluator_watch, "_queued", lambda pid: self.queued)
        specs = shared_channels(job) + counts_channels(job)
        self.transport = ShmTransport.create(specs, homes_of(config))
        self.counts = live_counts(self.transport, HOME)
        self.beside, self.process, self.given_up = {}, Process(), []
        evaluator = evaluator_of(config)
        self.watch = EvaluatorWatch(evaluator, self, self.transport, step_seconds=5.0)

    def give_up(self, home, how):
        self.given_up.append((home, how))
        del self.beside[home]

    def called(self):
        self.beside[HOME] = self.process
        return self

    def counts_on(self, *counts):
        for count in counts:
            self.counts[count] += 1.0
        return self

    def look(self, seconds, without_core=0.0):
        for _ in range(round(seconds / 0.1)):
            self.now += 0.1
            self.queued += 0.1 * without_core
            self.watch.look()


@pytest.fixture
def stage(monkeypatch):
    made = Stage(monkeypatch)
    yield made
    made.transport.close()


def test_one_in_a_step_for_too_long_is_asked_for_its_stack_and_given_up(stage):
    stage.called().counts_on(Count.READY_AT, Count.BUSY_SECONDS)
    stage.look(4.9)
    assert stage.process.signals == []
    stage.look(0.4)
    assert stage.process.signals == [signal.SIGUSR2] and not stage.given_up
    stage.look(1.0)
    how = "hung: a step took more than 5 s (environment.step_seconds)"
    assert stage.given_up == [(HOME, how)]


def test_one_that_nobody_has_called_or_that_counts_does_not_hang(stage):
    stage.look(1000)
    stage.called().counts_on(Count.READY_AT)
    for _ in range(100):
        stage.counts_on(Count.IDLE_SECONDS).look(4)
    assert not stage.process.signals


def test_games_may_take_longer_to_begin_and_a_process_longer_to_load(stage):
    stage.called().look(10 * 5 + 119)
    assert not stage.process.signals
    stage.counts_on(Count.READY_AT).look(10 * 5 - 1)
    assert not stage.process.signals
    stage.look(2)
    assert stage.given_up


def test_steps_that_are_only_slow_are_learned(stage):
    stage.called().counts_on(Count.READY_AT).look(40)
    stage.counts_on(Count.BUSY_SECONDS).look(100)
    assert not stage.process.signals
    stage.look(30)
    assert stage.given_up


def test_time_without_a_core_is_no_time_of_a_step(stage):
    stage.called().counts_on(Count.READY_AT, Count.BUSY_SECONDS)
    stage.look(40, without_core=0.9)
    assert not stage.process.signals
    stage.look(20, without_core=0.9)
    assert stage.given_up


def test_a_long_wait_for_a_core_is_told_at_its_end(stage):
    stage.called().counts_on(Count.READY_AT, Count.BUSY_SECONDS)
    for _ in range(3):
        stage.look(4)
        stage.queued += 4
        stage.look(0.1)
    assert not stage.process.signals


def test_a_launcher_that_was_stopped_takes_nobody_to_hang(stage):
    stage.called().counts_on(Count.READY_AT, Count.BUSY_SECONDS)
    for _ in range(3):
        stage.now += 600
        stage.watch.look()
    assert not stage.process.signals
