"""File descriptors that processes share: a memory file, and an event for each of them.

Children inherit them. Processes of one machine that nobody started together meet: every one listens
on a Unix socket with a name that cannot be guessed and lies in no folder; the names travel over
MPI. The first process of a machine makes the descriptors and hands them out.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import struct
from collections.abc import Iterable

from tianji.core.errors import TianJiError

SECONDS = 30.0  # for all to come
FIRST = 3  # after the standard streams, whose numbers a child gives to its own


def reserve(homes: Iterable[str]) -> tuple[int, dict[str, int]]:
    """File descriptors that children inherit; the memory has no name and goes with them."""
    names, kind = tuple(homes), os.EFD_NONBLOCK | os.EFD_CLOEXEC
    made: list[int] = []
    try:
        made.append(_moved(os.memfd_create("tianji")))
        for _ in names:
            made.append(_moved(os.eventfd(0, kind)))
    except OSError:  # too many: whoever tidies up needs some
        close_all(made)
        raise
    return made[0], dict(zip(names, made[1:], strict=True))


def close_all(descriptors: Iterable[int]) -> None:
    """Gives descriptors back."""
    for descriptor in descriptors:
        os.close(descriptor)


def pipe() -> tuple[int, int]:
    """The two ends of a pipe, to read from and to write into; children inherit neither."""
    reading, writing = os.pipe()
    return _moved(reading), _moved(writing)


def _moved(descriptor: int) -> int:
    """The same file under a number beyond the standard streams, one of which may be closed."""
    if descriptor >= FIRST:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FIRST)
    finally:
        os.close(descriptor)


class DescriptorService:
    """The place where one process hands out descriptors."""

    def __init__(self, n_guests: int) -> None:
        self.name = f"tianji-{secrets.token_hex(16)}"
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(f"\0{self.name}")
        self._socket.listen(n_guests)
        self._socket.settimeout(SECONDS)

    def hand_out(self, descriptors: list[int], n_guests: int) -> None:
        """Gives the same descriptors to every guest of the same user."""
        while n_guests:
            try:
                guest, _ = self._socket.accept()
            except TimeoutError:
                raise TianJiError(
                    f"{n_guests} processes of this host did not come for its shared memory within "
                    f"{SECONDS:.0f} s: their logs say why"
                ) from None
            with guest:
                if _user(guest) != os.getuid():
                    continue
                for descriptor in descriptors:  # one by one: a message holds 253 at most
                    socket.send_fds(guest, [b"."], [descriptor])
                n_guests -= 1

    def close(self) -> None:
        """Nobody is expected any more."""
        self._socket.close()


def fetch(name: str, n_descriptors: int) -> list[int]:
    """The descriptors that are handed out at the meeting called `name`."""
    found: list[int] = []
    with socket.socket(socket.AF_UNIX) as there:
        there.settimeout(SECONDS)
        there.connect(f"\0{name}")
        while len(found) < n_descriptors:
            word, more, _, _ = socket.recv_fds(there, 1, 1)
            if not word:
                raise TianJiError("the first process of this host has gone: its log says why")
            found += more
    return found


def _user(guest: socket.socket) -> int:
    _, user, _ = struct.unpack("3i", guest.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(user)
