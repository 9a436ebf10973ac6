"""What breaks in an actor's environments and is mended there: named, counted, within a budget."""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tianji.core.counts import WORDS_BYTES, Count, Vector
from tianji.core.errors import BudgetSpent, TianJiError

BUDGET_SECONDS = 3600.0  # over which mishaps are counted
TOLD_SECONDS = 1.0  # that words about one can be read before others take their place


class NotFinite(TianJiError):
    """NaN or Inf in what an environment shows or pays: its episode is of no use."""


class Mishaps:
    """An exception or a NaN costs its episode; more of them than `budget` an hour end the run.

    Every other `TianJiError` is a mistake of the user's, which no new environment would mend.
    """

    def __init__(
        self, name: str, counts: Vector, budget: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name, self._counts, self._budget, self._clock = name, counts, budget, clock
        self._recent: deque[tuple[float, str]] = deque()  # when, and what is to be said of it
        self._told_at: float | None = None
        self.log: Callable[[str], None] = lambda _: None  # of the role
        self.words = np.zeros(WORDS_BYTES, np.uint8)  # for who watches the run

    @property
    def n(self) -> int:
        """Mishaps of this actor so far: new environments are seeded by it."""
        return int(self._counts[Count.ENV_RESTARTS] + self._counts[Count.NOT_FINITE])

    def covers(self, error: Exception) -> bool:
        """Whether training may go on after this error."""
        return isinstance(error, NotFinite) or not isinstance(error, TianJiError)

    def add(self, error: Exception, where: str) -> None:
        """Counts one; raises what is no mishap, and `BudgetSpent` where it is one too many."""
        if not self.covers(error):
            raise error
        if isinstance(error, NotFinite):
            self._counts[Count.NOT_FINITE] += 1
            text = f"{str(error).partition(chr(10))[0]}; its episode is discarded"
            whole = text
        else:
            self._counts[Count.ENV_RESTARTS] += 1
            words = "".join(traceback.format_exception(error)).rstrip()
            text = f"{where} raised {type(error).__name__}: {error}; it was made anew"
            whole = f"{text}, its episode is discarded:\n{words}"
        now = self._clock()
        while self._recent and now - self._recent[0][0] > BUDGET_SECONDS:
            self._recent.popleft()
        self._recent.append((now, whole))
        if len(self._recent) > self._budget:
            self._give_up(error)
        self._say(whole, text, now)

    def lose(self, text: str) -> None:
        """Counts an episode that a game lost and began anew by itself, whatever the budget."""
        self._counts[Count.LOST_EPISODES] += 1
        self._say(text, text, self._clock())

    def _say(self, whole: str, text: str, now: float) -> None:
        self.log(whole)
        if self._told_at is None or now - self._told_at > TOLD_SECONDS:
            self._tell(whole if self._told_at is None else text)
            self._told_at = now

    def _give_up(self, error: Exception) -> None:
        n, (_, first) = len(self._recent), self._recent[0]
        raise BudgetSpent(
            f"the first time: {first}\n{self._name}: its environments broke {n} times within an "
            f"hour, and global_cfg.restarts allows {self._budget}: mend them, or raise that"
        ) from error

    def _tell(self, text: str) -> None:
        data = text.encode()[-WORDS_BYTES:]  # the end of a traceback says most
        self.words.fill(0)
        self.words[: len(data)] = np.frombuffer(data, np.uint8)


def said(words: npt.NDArray[np.uint8]) -> str:
    """What an actor told of a mishap; nothing if it had none."""
    return words.tobytes().rstrip(b"\0").decode(errors="replace").lstrip("\ufffd")
