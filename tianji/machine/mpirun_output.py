"""What mpirun writes of its own: kept off the terminal, and turned into one sentence on failure."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

MOST_LINES = 200  # of mpirun's own that are remembered
LAST_LINES = 5  # of them that are shown where no sentence of ours fits
CHUNK_BYTES = 1 << 16
FENCE = re.compile(rb"-{50,}\s*$")  # before and after each of its banners
OWN = re.compile(
    rb"(\[[\w.-]+:\d+\] |\d+ more process(es)? ha(s|ve) sent help message"
    rb"|ssh: |Connection (to|timed out|closed|refused)|Host key verification"
    rb"|\S+: Permission denied"
    rb"|LAUNCHER JOB OBJECT)"  # what it says at the end of a job that has started a process
)
MAY_BE_OWN = re.compile(  # the beginning of a line
    rb"-|\[[\w.-]*(:|$)|ssh|ss?$|\d+( more|$)|LA?U?N?C?(H|$)"
)


class Banners:
    """Tells the words of mpirun from those of the program that it started."""

    def __init__(self) -> None:
        self.kept: list[str] = []  # lines of mpirun's own

    def passing(self, stream: IO[bytes], show: Callable[[bytes], object]) -> None:
        """Shows what is not mpirun's until the stream ends, and keeps what is."""
        part = _Part()
        while chunk := os.read(stream.fileno(), CHUNK_BYTES):
            part.rest += chunk.replace(b"\0", b"")  # mpirun ends some of its words as C does
            show(self._sifted(part))
        if part.within or OWN.match(part.rest):
            self._keep(part.rest)
        else:
            show(part.rest)

    def _sifted(self, part: _Part) -> bytes:
        """What may be shown of what has come; whole lines alone can be told apart."""
        *lines, part.rest = part.rest.split(b"\n")
        shown = b"".join(line + b"\n" for line in lines if self._is_to_show(line, part))
        if part.within or MAY_BE_OWN.match(part.rest):
            return shown
        part.begun = part.begun or bool(part.rest)  # a panel is drawn without ends of lines
        shown, part.rest = shown + part.rest, b""
        return shown

    def _is_to_show(self, line: bytes, part: _Part) -> bool:
        if part.begun:
            part.begun = False
            return True
        if FENCE.match(line):
            part.after, part.within = part.within, not part.within
            return False
        if part.within or OWN.match(line):
            self._keep(line)
            return False
        shown = bool(line.strip()) or not part.after  # a blank line ends a banner
        part.after = False
        return shown

    def _keep(self, line: bytes) -> None:
        if line.strip():
            self.kept.append(line.decode(errors="replace").rstrip())
            del self.kept[:-MOST_LINES]

    @property
    def text(self) -> str:
        """All that was kept, as one line."""
        return " ".join(self.kept)


@dataclass
class _Part:
    """How far a stream has come."""

    rest: bytes = b""  # of a line that has not ended
    begun: bool = False  # its beginning was shown
    within: bool = False  # a banner has begun and not ended
    after: bool = False  # a banner has just ended


@dataclass(frozen=True)
class Reason:
    """Why mpirun ended by itself."""

    words: str
    users_mistake: bool


def reason(banners: Banners, n: int, begun: bool) -> Reason | None:
    """One sentence for what mpirun said, with what to do; None if it said nothing that matters.

    A host that is lost when the run has `begun` is sometimes said never to have come.
    """
    text = banners.text
    for pattern, users_mistake, words in _AFTERWARDS if begun else _KNOWN:
        if match := re.search(pattern, text):
            return Reason(words.format(*match.groups(), n=n), users_mistake)
    return None


def last_words(banners: Banners) -> str:
    """The end of what mpirun said, for whoever must find out."""
    return "\n".join(f"  mpirun: {line}" for line in banners.kept[-LAST_LINES:])


_LOST = (
    "host {0} was lost: it went down, or the link to it was cut. The same command goes on from "
    "the last checkpoint"
)
_LACKING = (
    "host {} has no {}: install TianJi there at the same path, or share the folder that it is "
    "installed in"
)
_AFTERWARDS = (
    (r"lost communication with a remote daemon.*Remote daemon: \S+ on node (\S+)", False, _LOST),
    (r"failed to report back.*Remote host: +(\S+)", False, _LOST),
)
_KNOWN = (
    _AFTERWARDS[0],
    (
        r"unable to find the specified executable.*Node: +(\S+) +Executable: +(\S+)",
        True,
        _LACKING.format("{0}", "{1}"),
    ),
    (
        r"could not access an executable: +Executable: +(\S+) +Node: +(\S+)",
        True,
        _LACKING.format("{1}", "{0}"),
    ),
    (
        r"not enough slots available",
        True,
        "the hosts have fewer places than this run has ranks ({n}): give them more with "
        "`slots=` in the hostfile, or ask Slurm for more tasks",
    ),
    (
        r"failed to report back.*Remote host: +(\S+)",
        True,
        "host {0} cannot be reached: `ssh {0} true` must work from here without a password, "
        "and both must see TianJi at the same path",
    ),
)
