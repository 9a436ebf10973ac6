"""A command that is stopped while it measures says so."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tianji.core.signals import Interrupted, Signals

STOPPED = "stopped while measuring: nothing was written"


@contextmanager
def stoppable() -> Iterator[None]:
    """Raises `Interrupted` with words to be said where a signal would have ended the command.

    A signal that a program has an answer of its own to, as Python has to Ctrl-C, is left to that.
    """
    open_ = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is signal.SIG_DFL]
    with Signals(open_) as signals:
        signals.at_once = True
        try:
            yield
        except Interrupted as stop:
            raise Interrupted(stop.number, STOPPED) from None
