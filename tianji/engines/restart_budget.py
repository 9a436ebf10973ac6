"""How often a process that is lost may be replaced, and how soon."""

from __future__ import annotations

from collections import deque

BUDGET_SECONDS = 3600.0  # over which `global_cfg.restarts` counts
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds before one that came to nothing is replaced


class RestartBudget:
    """So many losses within an hour; the more lives come to nothing in a row, the longer a pause.

    if not budget.spend(now, came_to_something): ...   # it is lost for good
    due = now + budget.pause
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lost_at: deque[float] = deque()
        self._fruitless = 0  # lives in a row that came to nothing

    def spend(self, now: float, came_to_something: bool) -> bool:
        """Notes a loss; False where there were too many."""
        while self._lost_at and now - self._lost_at[0] > BUDGET_SECONDS:
            self._lost_at.popleft()
        if len(self._lost_at) >= self._most:
            return False
        self._lost_at.append(now)
        self._fruitless = 0 if came_to_something else self._fruitless + 1
        return True

    @property
    def pause(self) -> float:
        """Seconds before it is replaced: none for one that had come to something."""
        if not self._fruitless:
            return 0.0
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (self._fruitless - 1))
