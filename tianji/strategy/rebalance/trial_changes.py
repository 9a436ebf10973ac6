"""Changes whose gain nobody knows beforehand: made, watched for a while, kept or taken back.

    buffer   the buffer leaves its learner's turns for a thread of its own
             (`engines/role_thread.py`), where a batch takes long to make
    threads  one more for the learner, where an update takes long

Either needs a core that is free, and a learner that is what limits. It stays only if the learner
then uses `WORTH` more per busy second, and only as long as it does not lose `LOSS` of that. Then it
is taken back for a trial too: what is slower because somebody else uses the cores may be slower yet
without it. What stayed goes one at a time as it came.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from tianji.observe.bottleneck import LONG_UPDATE

WORTH = 0.05  # more samples per busy second, or it is taken back
LOSS = 0.2  # less than when it was kept, and it is taken back too: somebody else uses the cores
FREE_CORES = 0.7  # of one core, unused among the learner's: enough for one more thread
LONG_BATCH = 0.001  # seconds; a shorter one is mostly Python, which threads run in turns
BATCH_SHARE = 0.1  # of an update's time that a batch takes, or there is nothing to be gained
TRIAL_READINGS = 3  # before and after
RETRY_SECONDS = 120.0  # before what gained nothing is tried again; then doubled
LONGEST_SECONDS = 3_600.0
MOST_IDLE = 0.05  # share of the learner's time; idler than this, it is not what limits


class Change(enum.StrEnum):
    """What is changed."""

    PAUSE = "pause"
    WAKE = "wake"
    THREADS = "threads"
    BUFFER = "buffer"


UNITS = {
    Change.PAUSE: "actors awake",
    Change.WAKE: "actors awake",
    Change.THREADS: "threads of the learner",
    Change.BUFFER: "threads of the buffer's own",
}
"""What the numbers of a decision count."""


@dataclass(frozen=True)
class Reading:
    """What one group did over a second or so."""

    n_awake: int
    n_paused: int
    acting: float  # TR_A: steps per second that the awake actors make while nothing holds them up
    learning: float  # TR_L: steps per second that the learner uses while it has some
    idle: float  # share of the learner's time
    threads: int = 1
    free_cores: float = 0.0  # of those that the learner may run on
    update_seconds: float = 0.0
    batch_seconds: float = 0.0  # that the buffer takes for a batch; 0 where it cannot be moved
    apart: int = 0  # threads of its own that the buffer has


@dataclass(frozen=True)
class Decision:
    """A change of one number, or that a change of it stays, and why."""

    kind: Change
    before: int  # as `UNITS` counts
    after: int
    why: str

    @property
    def unit(self) -> str:
        """What the numbers count."""
        return UNITS[self.kind]


@dataclass(frozen=True)
class _TrialChange:
    """A change that is watched: a thread more, or one less than was worth it once."""

    kind: Change
    before: int
    after: int
    rate: float  # TR_L before it

    @property
    def pays(self) -> float:
        """What TR_L must be for it to stay: more for a thread more, hardly less for one less."""
        return (1 + WORTH if self.after > self.before else 1 - WORTH) * self.rate


@dataclass(frozen=True)
class _Kept:
    """A thread more than `before` that was worth it."""

    kind: Change
    before: int
    rate: float  # TR_L with it


class TrialChanges:
    """What was tried in one group, and what came of it."""

    def __init__(self) -> None:
        self._rates: deque[float] = deque(maxlen=TRIAL_READINGS)  # TR_L since the last change
        self._running: _TrialChange | None = None
        self._kept: list[_Kept] = []
        self._retry_at = dict.fromkeys(Change, 0.0)
        self._retry_seconds = dict.fromkeys(Change, RETRY_SECONDS)

    @property
    def running(self) -> bool:
        """Whether something is being tried."""
        return self._running is not None

    def read(self, reading: Reading) -> None:
        """Takes in what a group did."""
        self._rates.append(reading.learning)

    def changed(self) -> None:
        """Something was changed: what was read before is of another time."""
        self._rates.clear()

    def judged(self, now: float) -> Decision | None:
        """What comes of the trial that runs: it stays or is undone; nothing if it is too soon."""
        assert self._running is not None
        if len(self._rates) < TRIAL_READINGS:
            return None
        trial, rate, self._running = self._running, self._rate(), None
        stays = rate > trial.pays
        found = trial.after if stays else trial.before
        least = min(trial.before, trial.after)
        if found > least:
            self._kept.append(_Kept(trial.kind, least, rate if stays else trial.rate))
        else:
            self._wait(trial.kind, now)
        used = f"{rate:,.0f} steps/s can be used with {trial.after}"
        why = f"{used}, {trial.rate:,.0f} with {trial.before}"
        return Decision(trial.kind, trial.after, found, why)

    def lost(self) -> Decision | None:
        """Takes back what was kept last, if it does not earn what it did: is it better without?"""
        if not self._kept or len(self._rates) < TRIAL_READINGS:
            return None
        last, rate = self._kept[-1], self._rate()
        if max(self._rates) >= (1 - LOSS) * last.rate:  # a mean may be of two times
            return None
        self._kept.pop()
        self._running = _TrialChange(last.kind, last.before + 1, last.before, rate)
        why = f"to see what it gains: {rate:,.0f} steps/s can be used, {last.rate:,.0f} at its best"
        return Decision(last.kind, last.before + 1, last.before, why)

    def begun(self, reading: Reading, now: float) -> Decision | None:
        """Something new, if there is a core for it and something that it could do."""
        if reading.idle > MOST_IDLE or reading.free_cores < FREE_CORES:
            return None
        if len(self._rates) < TRIAL_READINGS:
            return None
        for kind, before, takes in _promising(reading):
            if now >= self._retry_at[kind]:
                rate, free = self._rate(), f"{reading.free_cores:.1f} cores are free"
                why = f"to see what it gains: {rate:,.0f} steps/s can be used, {takes}, {free}"
                self._running = _TrialChange(kind, before, before + 1, rate)
                return Decision(kind, before, before + 1, why)
        return None

    def _wait(self, kind: Change, now: float) -> None:
        """Until it is tried again; what goes meanwhile goes for the same reason."""
        if now >= self._retry_at[kind]:
            self._retry_at[kind] = now + self._retry_seconds[kind]
            self._retry_seconds[kind] = min(2 * self._retry_seconds[kind], LONGEST_SECONDS)

    def _rate(self) -> float:
        return sum(self._rates) / len(self._rates)


def _promising(reading: Reading) -> Iterator[tuple[Change, int, str]]:
    """What might bring something: the number that it changes, and why it might."""
    update = f"an update takes {reading.update_seconds * 1e3:.1f} ms"
    share = reading.batch_seconds >= BATCH_SHARE * reading.update_seconds
    if not reading.apart and share and reading.batch_seconds >= LONG_BATCH:
        batch = f"a batch {reading.batch_seconds * 1e3:.1f} ms"
        yield Change.BUFFER, reading.apart, f"{update} and {batch}"
    is_slower = not reading.apart or reading.update_seconds > reading.batch_seconds  # of the two
    if reading.update_seconds >= LONG_UPDATE and is_slower:
        yield Change.THREADS, reading.threads, update
