"""An actor that nobody can look at ends its process by itself when a step of it hangs."""

from tianji.core.alarm import AT_FIRST, START_SECONDS
from tianji.engines.hang_watch import HangWatch


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


class Case:
    def __init__(self, seconds=2.0):
        self.clock, self.ended_at = Clock(), []
        end = lambda: self.ended_at.append(self.clock.now)  # noqa: E731
        self.watch = HangWatch(seconds, self.clock, end)

    def passes(self, seconds):
        """So much time, with a look ten times a second; whether it ended the process."""
        self.ended_at.clear()
        for _ in range(round(seconds * 10)):
            self.clock.now += 0.1
            self.watch.look()
        return bool(self.ended_at)


def test_a_step_that_hangs_ends_the_process():
    case = Case()
    case.watch.put_off()
    assert not case.passes(1.9)
    assert case.passes(0.3)


def test_the_first_steps_have_ten_times_as_long_and_the_start_more():
    case = Case()
    assert not case.passes(START_SECONDS + AT_FIRST * 2.0 - 0.5)
    case.watch.put_off(begun=False)
    assert not case.passes(AT_FIRST * 2.0 - 0.5)
    assert case.passes(1.0)


def test_a_step_may_take_three_times_as_long_as_the_longest_that_was_come_out_of():
    case = Case(seconds=2.0)
    case.watch.put_off()
    case.passes(1.5)
    case.watch.put_off()
    assert not case.passes(4.0)
    assert case.passes(1.0)


def test_a_job_that_was_stopped_does_not_hang_when_it_goes_on():
    case = Case()
    case.watch.put_off()
    case.clock.now += 3600.0
    assert not case.passes(1.0)


def test_what_follows_may_take_as_long_as_it_likes():
    case = Case()
    case.watch.put_off()
    case.watch.cancel()
    assert not case.passes(60.0)
