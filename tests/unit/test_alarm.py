"""An alarm goes off in what hangs, and is put off by what does not."""

import faulthandler

import pytest

from tianji.core import alarm
from tianji.core.alarm import Alarm, alarmed
from tianji.engines.worker_loop import Loop


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
