"""An alarm goes off in what hangs, and is put off by what does not."""

import faulthandler
from types import SimpleNamespace

import numpy as np
import pytest
from commands import TASKS

from tianji.config import load
from tianji.core import alarm
from tianji.core.alarm import Alarm, alarmed
from tianji.core.counts import Count
from tianji.engines import run_roles
from tianji.engines.worker_loop import Loop
from tianji.job import factory
from tianji.job.job import prepare


@pytest.fixture
def calls(monkeypatch):
    made = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", made.append)
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: made.append("off"))
    return made


def test_it_is_put_off_once_a_second_at_most(calls, monkeypatch):
    now, bell = [100.0], Alarm(7.0)
    monkeypatch.setattr(alarm.time, "monotonic", lambda: now[0])
    for _ in range(40):
        bell.put_off()
        now[0] += 0.25
    assert calls == [7.0] * 10


def test_one_of_a_second_does_not_go_off_in_what_puts_it_off(calls, monkeypatch):
    now, bell, set_at = [100.0], Alarm(1.0), []
    monkeypatch.setattr(alarm.time, "monotonic", lambda: now[0])
    for _ in range(80):
        n = len(calls)
        bell.put_off()
        set_at += now * (len(calls) > n)
        now[0] += 0.05
    assert max(np.diff(set_at)) < 0.5 < calls[0] == 1.0


def test_it_is_off_behind_what_it_watches_also_where_that_raises(calls):
    with pytest.raises(KeyError), alarmed(3.0):
        raise KeyError
    assert calls == [3.0, "off"]


class Ports:
    shared = None

    def outbox(self, name):
        raise AssertionError(name)


def test_every_report_of_a_process_puts_its_alarm_off(calls):
    loop = Loop([], Ports(), alarm=Alarm(5.0))
    loop._pulse()
    assert calls == [5.0]
    Loop([], Ports())._pulse()
    assert calls == [5.0]


class Played:
    """An evaluator that has nothing more to do."""

    name, done, paused = "evaluator-0.0", True, False
    counts = np.zeros(len(Count))

    def report(self):
        return {}

    def close(self):
        pass


def test_an_evaluator_puts_off_the_alarm_of_its_process_too(calls, monkeypatch):
    config = load(TASKS / "walk_ppo.py", ["exp.eval_step=100"])
    job = prepare(config, factory.make_env(config).spec)
    pushed = []
    outbox = SimpleNamespace(push=lambda report, version: pushed.append(version))
    ports = SimpleNamespace(shared=None, outbox=lambda name: outbox)
    monkeypatch.setattr(factory, "build", lambda *given: Played())
    run_roles.train("evaluator-0.0", job, ports, {"threads": {}}, alarm=Alarm(5.0))
    assert (calls, pushed) == ([5.0], [0])
