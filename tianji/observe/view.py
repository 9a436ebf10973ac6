"""Where a run is shown while it goes on: a live panel in a terminal, plain lines anywhere else."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Protocol, TextIO

from tianji.machine import mpirun
from tianji.observe.panel import Scene, line, panel
from tianji.observe.rates import updates_since

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

LINE_SECONDS = 2.0  # from one plain line to the next


class View(Protocol):
    """Somewhere to show a run."""

    def show(self, scene: Scene) -> None:
        """Shows the moment; called about four times a second."""

    def close(self, scene: Scene) -> None:
        """Shows how it ended."""


def view_for(stream: TextIO | None = None) -> View:
    """A panel if `stream` is a terminal that can draw one, lines otherwise."""
    stream = sys.stdout if stream is None else stream
    try:
        draws = (
            stream.isatty() and mpirun.draws() and (stream.encoding or "").lower().startswith("utf")
        )
    except (AttributeError, ValueError):  # a notebook's, or closed
        draws = False
    if not draws:
        return Lines(stream)
    from rich.console import Console

    console = Console(file=stream)
    return Lines(stream) if console.is_dumb_terminal else LivePanel(console)


class Lines:
    """One plain line every two seconds, the first as soon as something was learned."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._due = 0.0

    def show(self, scene: Scene) -> None:
        """Prints a line if it is time for one."""
        if updates_since(scene.progress) and scene.elapsed >= self._due:
            self._due = scene.elapsed + LINE_SECONDS
            print(line(scene), file=self._stream, flush=True)

    def close(self, scene: Scene) -> None:
        """Prints nothing: what comes after a run says how it ended."""


class LivePanel:
    """A panel that is redrawn in place; its last picture stays on the screen."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._calm: Callable[[], None] = lambda: None

    def show(self, scene: Scene) -> None:
        """Draws the panel."""
        from rich.console import Group

        if self._live is None:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
            atexit.register(self._live.stop)  # the cursor comes back, whatever happens
            self._calm = _without_echo_of_control(self._console.file)
            atexit.register(self._calm)
        ended = [""] if mpirun.inside() else []  # mpirun keeps back a line that has not ended
        self._live.update(Group(panel(scene), *ended), refresh=True)

    def close(self, scene: Scene) -> None:
        """Draws the panel for the last time."""
        self.show(scene)
        if self._live is not None:
            self._live.update(panel(scene), refresh=True)  # `stop` ends its last line
            self._live.stop()
            atexit.unregister(self._live.stop)
            self._calm()
            atexit.unregister(self._calm)


def _without_echo_of_control(stream: IO[str]) -> Callable[[], None]:
    """Ctrl-C writes no `^C` into the panel until what is returned is called."""
    import termios

    try:
        terminal = stream.fileno()
        if os.tcgetpgrp(terminal) != os.getpgrp():  # in the background it is not ours to change
            return lambda: None
        before = termios.tcgetattr(terminal)
        changed = [*before[:3], before[3] & ~termios.ECHOCTL, *before[4:]]
        termios.tcsetattr(terminal, termios.TCSANOW, changed)
    except (OSError, ValueError, termios.error):  # no terminal, or one that is not here
        return lambda: None

    def give_back() -> None:
        with suppress(OSError, ValueError, termios.error):
            if os.tcgetpgrp(terminal) == os.getpgrp():
                termios.tcsetattr(terminal, termios.TCSANOW, before)

    return give_back
