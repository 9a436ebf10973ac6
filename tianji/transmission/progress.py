"""What a run says of itself while it measures: what comes now, and how much time is left."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from typing import TextIO

from tianji.observe.panel import roughly
from tianji.transmission.steps import Step

TRUST_SECONDS = 30.0  # after which what was measured counts more than what was guessed


class Progress:
    """A line for every step: overwritten on a terminal, one below the other elsewhere."""

    def __init__(
        self, steps: Sequence[Step], stream: TextIO, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.n_steps = len(steps)
        self.n_over = 0
        self._left = sum(step.seconds for step in steps)  # as it was guessed
        self._over = 0.0  # likewise, of the steps that are over
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._clock = clock
        self._began = clock()

    def begin(self, step: Step) -> None:
        """Says what is measured now."""
        left = roughly(self.seconds_left())
        self._say(f"{self.n_over + 1}/{self.n_steps}  {step.words}  ({left} left)")

    def end(self, step: Step) -> None:
        """Learns from how long it took."""
        self.n_over += 1
        self._left -= step.seconds
        self._over += step.seconds

    def seconds_left(self) -> float:
        """The guess for what is to come, as much too small or too large as it was so far."""
        taken = self._clock() - self._began
        return self._left * (taken + TRUST_SECONDS) / (self._over + TRUST_SECONDS)

    def clear(self) -> None:
        """Makes room on a terminal for something else."""
        if self._is_terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _say(self, words: str) -> None:
        if self._is_terminal:
            words = "\r\x1b[K" + words[: shutil.get_terminal_size().columns - 1]
        self._stream.write(words if self._is_terminal else words + "\n")
        self._stream.flush()
