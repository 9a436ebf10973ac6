"""When to pause actors, when to wake them, and whether the learner gains by another thread.

Pure: readings go in, decisions come out, and the time is what the caller says it is. With TR_A the
steps that the awake actors could make per second and TR_L those that the learner could use:

    pause   while those who stay can make (1 + `PAUSE_MARGIN`) * TR_L and the learner idles no more
            than `PAUSE_IDLE`
    wake    when the learner idles more than `WAKE_IDLE`, or when TR_A is less than
            (1 + `WAKE_MARGIN`) * TR_L and it idles more than `PAUSE_IDLE`
    thread  one more, where a core is free and nobody is to be paused; kept only if the learner then
            uses `WORTH` more per busy second, and only as long as it does not lose `LOSS` of that.
            Threads go one at a time as they came: where somebody else has taken one core, the
            others still earn theirs; where all is slower, the next one goes some seconds later

Between the two margins nothing happens. Pauses go by half at most and after several readings that
agree. A pause that soon had to be taken back is not repeated for a time which doubles with every
such mistake, so a load on which pausing is wrong ends with everybody awake: as without all this.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from dataclasses import dataclass

from tianji.wording import count_of

PAUSE_MARGIN = 0.5  # what the actors that stay could make beyond what the learner can use
MIDDLE_MARGIN = 0.3  # aimed at when waking: between the other two, so that neither follows
WAKE_MARGIN = 0.1
PAUSE_IDLE = 0.05  # share of the learner's time; idler than this, nobody is paused
WAKE_IDLE = 0.15
PAUSE_READINGS = 3  # that must agree
WAKE_READINGS = 2
LEAST_SECONDS = 5.0  # from any decision to the next pause or thread
FIRST_PATIENCE = 30.0  # seconds before a pause that was taken back is tried again; then doubled
LONGEST_PATIENCE = 3_600.0
SLOWER = 0.7  # of what an actor made when others were paused: to wake them is no mistake

WORTH = 0.05  # more samples per busy second, or a thread is taken back
LOSS = 0.2  # less than when it was kept, and it is taken back too: somebody else uses the cores
FREE_CORES = 0.7  # of one core, unused among the learner's: enough for one more thread
LONG_UPDATE = 0.002  # seconds; a shorter update gains nothing by threads
TRIAL_READINGS = 3  # before and after
RETRY_SECONDS = 120.0  # before a thread that gained nothing is tried again; then doubled


class Change(enum.StrEnum):
    """What is changed."""

    PAUSE = "pause"
    WAKE = "wake"
    THREADS = "threads"


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


@dataclass(frozen=True)
class Decision:
    """A change of one number, and why."""

    kind: Change
    before: int  # actors awake, or threads
    after: int
    why: str

    @property
    def unit(self) -> str:
        """What the numbers count."""
        return "threads of the learner" if self.kind is Change.THREADS else "actors awake"


@dataclass(frozen=True)
class _Trial:
    """One more thread than `before`."""

    before: int
    rate: float  # TR_L before it, or with it once it is kept


class Balancer:
    """Decides for one group, in which at least so many actors stay awake."""

    def __init__(self, least_awake: int = 1) -> None:
        self._least = max(1, least_awake)
        self._wanted = 0  # direction in which the last readings agree: -1, 0 or 1
        self._n_agree = 0
        self._not_before = 0.0  # the next pause or thread
        self._paused_at = -math.inf
        self._paced = 0.0  # steps per second of an actor then
        self._floor = 1  # actors that must stay awake ...
        self._floor_until = 0.0  # ... until then
        self._patience = FIRST_PATIENCE
        self._rates: deque[float] = deque(maxlen=TRIAL_READINGS)  # TR_L since the last decision
        self._trial: _Trial | None = None
        self._kept: list[_Trial] = []  # threads that were worth it, each with TR_L since then
        self._retry_at = 0.0
        self._retry_seconds = RETRY_SECONDS

    def decide(self, reading: Reading, now: float) -> Decision | None:
        """What to change now; nearly always nothing. What is returned is taken as done."""
        self._rates.append(reading.learning)
        wanted = self._wanted_awake(reading, now)
        direction = (wanted > reading.n_awake) - (wanted < reading.n_awake)
        self._n_agree = self._n_agree + 1 if direction == self._wanted else 1
        self._wanted = direction
        if direction > 0 and (self._n_agree >= WAKE_READINGS or not reading.n_awake):
            return self._wake(reading, wanted, now)
        if self._trial is not None:
            return self._judged(self._trial, reading, now)
        if now < self._not_before:
            return None
        if self._kept and self._is_lost(self._kept[-1]):
            return self._taken_back(self._kept.pop(), reading, now)
        if direction < 0:
            return self._pause(reading, wanted, now) if self._n_agree >= PAUSE_READINGS else None
        return self._try_thread(reading, now)

    def _wanted_awake(self, reading: Reading, now: float) -> int:
        """How many actors should be awake by this reading alone."""
        n, everybody = reading.n_awake, reading.n_awake + reading.n_paused
        if not n:
            return min(1, everybody)
        each, needed = reading.acting / n, reading.learning
        short = reading.acting < (1 + WAKE_MARGIN) * needed and reading.idle > PAUSE_IDLE
        if reading.n_paused and (short or reading.idle > WAKE_IDLE):
            enough = _ceil((1 + MIDDLE_MARGIN) * needed / each) if each > 0 else everybody
            return min(everybody, max(n + 1, enough))
        if reading.idle > PAUSE_IDLE or not needed or not each:
            return n
        floor = self._floor if now < self._floor_until else 1
        enough = _ceil((1 + PAUSE_MARGIN) * needed / each)
        return min(n, max(self._least, floor, enough, math.ceil(n / 2)))

    def _wake(self, reading: Reading, wanted: int, now: float) -> Decision:
        each = reading.acting / max(1, reading.n_awake)
        if now - self._paused_at < self._patience and each > SLOWER * self._paced:
            # The actors work as then, so that was a mistake.
            self._floor, self._floor_until = reading.n_awake + 1, now + self._patience
            self._patience = min(2 * self._patience, LONGEST_PATIENCE)
        else:
            self._patience = FIRST_PATIENCE
        why = f"the learner idles {reading.idle:.0%}: {_capacities(reading)}"
        return self._changed(Decision(Change.WAKE, reading.n_awake, wanted, _spaced(why)), now)

    def _pause(self, reading: Reading, wanted: int, now: float) -> Decision:
        self._paused_at, self._paced = now, reading.acting / reading.n_awake
        why = f"{_capacities(reading)}, the learner idles {reading.idle:.0%}"
        return self._changed(Decision(Change.PAUSE, reading.n_awake, wanted, _spaced(why)), now)

    def _try_thread(self, reading: Reading, now: float) -> Decision | None:
        """One more thread, if there is a core for it and something that it could do."""
        idle = reading.idle > PAUSE_IDLE or reading.free_cores < FREE_CORES
        if idle or reading.update_seconds < LONG_UPDATE or now < self._retry_at:
            return None
        if len(self._rates) < TRIAL_READINGS:
            return None
        rate, n = _mean(self._rates), reading.threads
        why = (
            f"to see what it gains: {rate:,.0f} steps/s can be used, an update takes "
            f"{reading.update_seconds * 1e3:.1f} ms, {reading.free_cores:.1f} cores are free"
        )
        self._trial = _Trial(n, rate)
        return self._changed(Decision(Change.THREADS, n, n + 1, why), now)

    def _judged(self, trial: _Trial, reading: Reading, now: float) -> Decision | None:
        """After the trial: nothing if it was worth it."""
        if len(self._rates) < TRIAL_READINGS:
            return None
        self._trial, rate = None, _mean(self._rates)
        if rate <= (1 + WORTH) * trial.rate:
            return self._taken_back(trial, reading, now)
        self._kept.append(_Trial(trial.before, rate))
        self._not_before = now + LEAST_SECONDS
        return None

    def _is_lost(self, kept: _Trial) -> bool:
        """Whether a thread that was kept does not earn what it did."""
        enough = len(self._rates) == TRIAL_READINGS
        return enough and _mean(self._rates) < (1 - LOSS) * kept.rate

    def _taken_back(self, trial: _Trial, reading: Reading, now: float) -> Decision:
        if now >= self._retry_at:  # else this one goes for the same reason as the last
            self._retry_at = now + self._retry_seconds
            self._retry_seconds = min(2 * self._retry_seconds, LONGEST_PATIENCE)
        with_them = f"{_mean(self._rates):,.0f} steps/s can be used with {reading.threads}"
        why = f"{with_them}, {trial.rate:,.0f} before; {reading.n_awake} actors are awake"
        return self._changed(Decision(Change.THREADS, reading.threads, trial.before, why), now)

    def _changed(self, decision: Decision, now: float) -> Decision:
        self._rates.clear()
        self._n_agree, self._not_before = 0, now + LEAST_SECONDS
        return decision


def _capacities(reading: Reading) -> str:
    """As in `8 actors could make 9,600 steps/s with a core each, the learner can use 1,200`.

    TR_A is reckoned from the time in which each was busy: actors that share cores, or wait for the
    learner on the same ones, would not make so much all at once.
    """
    n = count_of(reading.n_awake, "actor")
    with_cores = "with a core each" if reading.n_awake > 1 else "with a core of its own"
    used = f"the learner can use {reading.learning:,.0f}"
    return f"{n} could make {reading.acting:,.0f} steps/s {with_cores}, {used}"


def _ceil(number: float) -> int:
    """Without being led astray by the last digit of a float."""
    return math.ceil(number - 1e-9)


def _mean(values: deque[float]) -> float:
    return sum(values) / len(values)


def _spaced(text: str) -> str:
    return text.replace("%", " %")
