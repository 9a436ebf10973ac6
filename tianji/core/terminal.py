"""The place that a command prints to: how wide it is, and what is said there beside the results."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from tianji.core.columns import wrapped

USUAL, NARROWEST = 80, 40  # columns where a terminal does not say, and that are used at least


def width(stream: TextIO | None = None) -> int | None:
    """Columns of the terminal, or of `COLUMNS`; None where it is a file or a pipe.

    The `stream` is standard output unless given.
    """
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said) > 0:
        return max(int(said), NARROWEST)
    stream = sys.stdout if stream is None else stream
    try:
        if not stream.isatty():
            return None
        found = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError, AttributeError):  # closed, or a notebook's
        return None
    return max(found or USUAL, NARROWEST)


def say(label: str, text: str) -> None:
    """Words for whoever looks on, behind a label as in `note: ...`, on standard error."""
    head, *more = text.split("\n")
    room, first = width(sys.stderr), f"{label}: "
    lines = wrapped(head, room, len(first), first)
    for line in more:
        # What is set off from the margin was laid out by somebody, as a traceback is.
        lines += [line] if not line or line[0].isspace() else wrapped(line, room)
    print("\n".join(lines), file=sys.stderr, flush=True)


class StatusLine:
    """One line about what is being measured, written over the one before; `over` takes it away.

    Where standard error is no terminal, each is a line of its own, or nothing if `only_live`.
    """

    def __init__(self, quiet: bool, only_live: bool = False) -> None:
        self._live = sys.stderr.isatty()
        self._quiet = quiet or (only_live and not self._live)

    def __call__(self, words: str) -> None:
        """Shows what is measured now."""
        if self._quiet:
            return
        text = f"measuring: {words}"
        if self._live:
            cut = text[: (width(sys.stderr) or USUAL) - 1]  # a longer one could not be taken away
            print(f"\r\x1b[2K{cut}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def over(self) -> None:
        """Takes the line away."""
        if not self._quiet and self._live:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
