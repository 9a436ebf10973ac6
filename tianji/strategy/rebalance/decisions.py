"""When to pause actors, when to wake them, and when to try what else there is.

Pure: readings go in, decisions come out, and the time is what the caller says it is. With TR_A the
steps that the awake actors could make per second and TR_L those that the learner could use:

    pause   while those who stay can make (1 + `PAUSE_MARGIN`) * TR_L and the learner idles no more
            than `MOST_IDLE`
    wake    when the learner idles more than `WAKE_IDLE`, or when TR_A is less than
            (1 + `WAKE_MARGIN`) * TR_L and it idles more than `MOST_IDLE`
    try     a thread for the buffer, or one more for the learner, where a core is free and nobody is
            to be paused: `trial_changes.py`

Between the two margins nothing happens. Pauses go by half at most and after several readings that
agree. A pause that soon had to be taken back is not repeated for a time which doubles with every
such mistake, so a load on which pausing is wrong ends with everybody awake: as without all this.
"""

from __future__ import annotations

import math

from tianji.core.wording import count_of
from tianji.strategy.rebalance.trial_changes import (
    MOST_IDLE,
    Change,
    Decision,
    Reading,
    TrialChanges,
)

PAUSE_MARGIN = 0.5  # what the actors that stay could make beyond what the learner can use
MIDDLE_MARGIN = 0.3  # aimed at when waking: between the other two, so that neither follows
WAKE_MARGIN = 0.1
WAKE_IDLE = 0.15  # share of the learner's time
PAUSE_READINGS = 3  # that must agree
WAKE_READINGS = 2
LEAST_SECONDS = 5.0  # from any decision to the next pause or trial
FIRST_PATIENCE = 30.0  # seconds before a pause that was taken back is tried again; then doubled
LONGEST_PATIENCE = 3_600.0
SLOWER = 0.7  # of what an actor made when others were paused: to wake them is no mistake


class Balancer:
    """Decides for one group, in which at least so many actors stay awake."""

    def __init__(self, least_awake: int = 1) -> None:
        self._least = max(1, least_awake)
        self._wanted = 0  # direction in which the last readings agree: -1, 0 or 1
        self._n_agree = 0
        self._not_before = 0.0  # the next pause or trial
        self._paused_at = -math.inf
        self._paced = 0.0  # steps per second of an actor then
        self._floor = 1  # actors that must stay awake ...
        self._floor_until = 0.0  # ... until then
        self._patience = FIRST_PATIENCE
        self._trials = TrialChanges()

    def decide(self, reading: Reading, now: float) -> Decision | None:
        """What to change now; nearly always nothing. What is returned is taken as done."""
        self._trials.read(reading)
        wanted = self._wanted_awake(reading, now)
        direction = (wanted > reading.n_awake) - (wanted < reading.n_awake)
        self._n_agree = self._n_agree + 1 if direction == self._wanted else 1
        self._wanted = direction
        if direction > 0 and (self._n_agree >= WAKE_READINGS or not reading.n_awake):
            return self._wake(reading, wanted, now)
        if self._trials.running:
            decision = self._trials.judged(now)
            return decision and self._changed(decision, now)
        if now < self._not_before:
            return None
        if (decision := self._trials.lost()) is not None:
            return self._changed(decision, now)
        if direction < 0:
            return self._pause(reading, wanted, now) if self._n_agree >= PAUSE_READINGS else None
        decision = self._trials.begun(reading, now)
        return decision and self._changed(decision, now)

    def _wanted_awake(self, reading: Reading, now: float) -> int:
        """How many actors should be awake by this reading alone."""
        n, everybody = reading.n_awake, reading.n_awake + reading.n_paused
        if not n:
            return min(1, everybody)
        each, needed = reading.acting / n, reading.learning
        short = reading.acting < (1 + WAKE_MARGIN) * needed and reading.idle > MOST_IDLE
        if reading.n_paused and (short or reading.idle > WAKE_IDLE):
            enough = _ceil((1 + MIDDLE_MARGIN) * needed / each) if each > 0 else everybody
            return min(everybody, max(n + 1, enough))
        if reading.idle > MOST_IDLE or not needed or not each:
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

    def _changed(self, decision: Decision, now: float) -> Decision:
        self._trials.changed()
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


def _spaced(text: str) -> str:
    return text.replace("%", " %")
