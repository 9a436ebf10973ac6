"""What a probe still has time for."""

from __future__ import annotations

import time

from tianji.strategy.plan.profile import ActorCost
from tianji.strategy.probe.measure import LEAST_STEPS, LEAST_UPDATES

LONGEST_SECONDS, SHORTEST_SECONDS = 1.2, 0.3  # of one measurement
MAKING_SECONDS = 0.7  # what comes before each: environments, networks, warming up


class Timetable:
    """Until when there may be measurements, and how long each of them is."""

    def __init__(self, ends: float, n_stages: int, n_later: int) -> None:
        """`ends` is a moment of `time.monotonic`; `n_later` of all stages must come at the end."""
        self._ends = ends
        each = (ends - time.monotonic()) / n_stages - MAKING_SECONDS
        self.seconds = min(LONGEST_SECONDS, max(SHORTEST_SECONDS, each))
        self._turn = 0.0  # seconds from one update to the next, as soon as that is known
        self._kept = n_later * (self.seconds + MAKING_SECONDS)

    def expect(self, update_seconds: float, pause: float = 0.0) -> None:
        """Counts with a learner that takes so long for an update, and sleeps before it."""
        self._turn = update_seconds + pause

    def spend_all(self) -> None:
        """From now on nothing is kept for what must come at the end."""
        self._kept = 0.0

    def is_late(self, n_stages: int = 1, times: float = 1.0, needed: float = 0.0) -> bool:
        """Whether there is no time for so many stages, and `needed` seconds beside.

        Their updates take `times` as long as expected; one of them is for warming up.
        """
        each = self.seconds + MAKING_SECONDS + (1 + LEAST_UPDATES) * times * self._turn
        return time.monotonic() + n_stages * each + needed + self._kept > self._ends

    def is_late_for(self, envs: int, before: ActorCost, n_stages: int = 1) -> bool:
        """The same where actors have `envs` environments; `before` is what some others cost."""
        stepping = before.step_seconds * max(1.0, envs / before.envs)
        return self.is_late(n_stages, needed=n_stages * (1 + LEAST_STEPS) * stepping)
