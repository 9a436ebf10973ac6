"""What processes share before anybody knows the sizes: a memory file and an event for each."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable

FIRST = 3  # after the standard streams, whose numbers a child gives to its own


def reserve(homes: Iterable[str]) -> tuple[int, dict[str, int]]:
    """File descriptors that children inherit; the memory has no name and goes with them."""
    kind = os.EFD_NONBLOCK | os.EFD_CLOEXEC
    memory = _moved(os.memfd_create("tianji"))
    return memory, {home: _moved(os.eventfd(0, kind)) for home in homes}


def _moved(descriptor: int) -> int:
    """The same file under a number beyond the standard streams, one of which may be closed."""
    if descriptor >= FIRST:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FIRST)
    finally:
        os.close(descriptor)
