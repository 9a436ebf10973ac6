"""A blocking samples-per-insert limiter, as Reverb has: what ratelimit.py measures ours against.

Written here from its documented behaviour: `insert` and `sample` wait until the ratio allows them.
"""

from __future__ import annotations

import math
import threading
import time

from measures import Event


class SamplesPerInsert:
    """Holds samples / inserts near a ratio by making both callers wait.

    With i items inserted and s sampled, diff = i * ratio - s is kept within `error_buffer` of
    ratio * min_size:

        an item may be inserted while the first min_size are not there yet, or diff stays <= largest
        an item may be sampled  once min_size items are there, and diff stays >= smallest

    Items are admitted one by one, so a trajectory may wait with a part of it inserted, and a batch
    with a part of it drawn.
    """

    def __init__(self, ratio: float, min_size: int, error_buffer: float) -> None:
        least = 2 * max(1.0, ratio)
        if ratio <= 0 or 2 * error_buffer < least:
            raise ValueError(
                f"error_buffer {error_buffer:g} is too small for a ratio of {ratio:g}: neither "
                f"side could go on; use {least / 2:g} at least"
            )
        self.ratio, self.min_size = ratio, min_size
        self.smallest = ratio * min_size - error_buffer
        self.largest = ratio * min_size + error_buffer
        self.inserted = self.sampled = 0
        self.came: list[Event] = []  # when how many were inserted
        self.went: list[Event] = []
        self._closed = False
        self._changed = threading.Condition()

    def insertable(self) -> int:
        """Items that could be inserted now."""
        first = self.min_size - self.inserted
        allowed = math.floor((self.largest + self.sampled) / self.ratio + 1e-9) - self.inserted
        return max(0, first, allowed)

    def samplable(self) -> int:
        """Items that could be sampled now."""
        if self.inserted < self.min_size:
            return 0
        return max(0, math.floor(self.inserted * self.ratio - self.sampled - self.smallest + 1e-9))

    def insert(self, n: int) -> bool:
        """Waits until all `n` items are in; False if the limiter was closed before."""
        with self._changed:
            while n > 0:
                self._changed.wait_for(lambda: self._closed or self.insertable() > 0)
                if self._closed:
                    return False
                now = min(n, self.insertable())
                self.inserted += now
                self.came.append((time.perf_counter(), now))
                n -= now
                self._changed.notify_all()
        return True

    def sample(self, n: int) -> bool:
        """Waits until all `n` items are drawn; False if the limiter was closed before."""
        with self._changed:
            while n > 0:
                self._changed.wait_for(lambda: self._closed or self.samplable() > 0)
                if self._closed:
                    return False
                now = min(n, self.samplable())
                self.sampled += now
                self.went.append((time.perf_counter(), now))
                n -= now
                self._changed.notify_all()
        return True

    def close(self) -> None:
        """Lets everybody go who waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
