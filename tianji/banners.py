"""What mpirun writes of its own: kept off the terminal, and turned into one sentence on failure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

MOST_LINES = 200  # of mpirun's own that are remembered
LAST_LINES = 5  # of them that are shown where no sentence of ours fits
FENCE = re.compile(r"^-{50,}\s*$")  # before and after each of its banners
OWN = re.compile(
    r"^(\[[\w.-]+:\d+\] |\d+ more process(es)? ha(s|ve) sent help message"
    r"|ssh: |Connection (to|timed out|closed|refused)|Host key verification|\S+: Permission denied)"
)


@dataclass
class Banners:
    """Tells the words of mpirun from those of the program that it started."""

    kept: list[str] = field(default_factory=list)
    _within: bool = False

    def others(self, lines: Iterable[str], show: Callable[[str], object]) -> None:
        """Shows what is not mpirun's, and keeps what is."""
        after_banner = False
        for line in lines:
            if FENCE.match(line):
                after_banner, self._within = self._within, not self._within
            elif self._within or OWN.match(line):
                self._keep(line)
            elif not (after_banner and not line.strip()):  # a blank line ends a banner
                after_banner = False
                show(line)

    def _keep(self, line: str) -> None:
        if line.strip():
            self.kept.append(line.rstrip())
            del self.kept[:-MOST_LINES]

    @property
    def text(self) -> str:
        """All that was kept, as one line."""
        return " ".join(self.kept)


@dataclass(frozen=True)
class Reason:
    """Why mpirun ended by itself."""

    words: str
    users_mistake: bool


def reason(banners: Banners, n: int) -> Reason | None:
    """One sentence for what mpirun said, with what to do; None if it said nothing that matters."""
    text = banners.text
    for pattern, users_mistake, words in _KNOWN:
        if match := re.search(pattern, text):
            return Reason(words.format(*match.groups(), n=n), users_mistake)
    return None


def last_words(banners: Banners) -> str:
    """The end of what mpirun said, for whoever must find out."""
    return "\n".join(f"  mpirun: {line}" for line in banners.kept[-LAST_LINES:])


_KNOWN = (
    (
        r"unable to find the specified executable.*Node: +(\S+) +Executable: +(\S+)",
        True,
        "host {0} has no {1}: install TianJi there at the same path, or share the folder "
        "that it is installed in",
    ),
    (
        r"not enough slots available",
        True,
        "the hosts have fewer places than this run has ranks ({n}): give them more with "
        "`slots=` in the hostfile, or ask Slurm for more tasks",
    ),
    (
        r"lost communication with a remote daemon.*Remote daemon: \S+ on node (\S+)",
        False,
        "host {0} was lost: it went down, or the link to it was cut. The same command goes on "
        "from the last checkpoint",
    ),
    (
        r"failed to report back.*Remote host: +(\S+)",
        True,
        "host {0} cannot be reached: `ssh {0} true` must work from here without a password, "
        "and both must see TianJi at the same path",
    ),
    (
        r"unable to open the hostfile: +(\S+)",
        True,
        "hostfile {0} cannot be read: want one host in each line, as in `node1 slots=4`",
    ),
    (
        r"parse error in the hostfile: +(\S+) +It occured on line number (\d+)",
        True,
        "{0}:{1}: want a host and its places, as in `node1 slots=4`",
    ),
)
