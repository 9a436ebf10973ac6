"""What processes share before anybody knows the sizes: a memory file and an event for each."""

from __future__ import annotations

import os
from collections.abc import Iterable


def reserve(homes: Iterable[str]) -> tuple[int, dict[str, int]]:
    """File descriptors that children inherit; the memory has no name and goes with them."""
    kind = os.EFD_NONBLOCK | os.EFD_CLOEXEC
    return os.memfd_create("tianji"), {home: os.eventfd(0, kind) for home in homes}
