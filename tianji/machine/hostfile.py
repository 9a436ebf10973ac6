"""The hostfile of mpirun, read before mpirun does: a mistake in it is told with its line."""

from __future__ import annotations

import re
from pathlib import Path

from tianji.core.errors import TianJiError
from tianji.core.json_file import read_text

MOST_BYTES = 1 << 20
WANTED = "want a host and its places, as in `node1 slots=4`"
NAME = r"(?:[\w.-]+@)?\w[\w.-]*"
ADDRESS = r"[\da-fA-F]*:[\da-fA-F]*:[\da-fA-F:.]*"  # of IPv6
PLACES = r"\s+(?:slots|count|cpu)\s*=\s*(?P<slots>[1-9]\d{0,8})"
MOST = r"\s+max[_-]slots\s*=\s*(?P<most>[1-9]\d{0,8})"
OTHER = r"\s+(?:port|user-?_?name)\s*=\s*\S+"  # as mpirun knows them; nothing to check
LINE = re.compile(rf"(?P<host>{NAME}|{ADDRESS})(?:{OTHER}|{PLACES}|{MOST})*\s*")


def check(path: Path, n: int) -> list[str]:
    """The machines; raises unless every line names one, and together they have room for `n` ranks.

    A line without `slots` has as many places as its machine has cores, which mpirun alone can
    tell: then it is left to mpirun to say that they are too few.
    """
    places = read(path)
    known = [count for count in places.values() if count is not None]
    if len(known) == len(places) and sum(known) < n:
        raise TianJiError(
            f"{path}: places on all hosts: {sum(known)}, ranks of this run: {n}. Give them "
            "more with `slots=`, add a host, or lower actor_cfg.num"
        )
    return list(places)


def read(path: Path) -> dict[str, int | None]:
    """The places on every machine, by its name; None: as many as it has cores."""
    places: dict[str, int | None] = {}
    for number, line in enumerate(read_text(path, MOST_BYTES).splitlines(), 1):
        text = line.partition("#")[0].strip()
        if text:
            _add(places, text, f"{path}:{number}")
    if not places:
        raise TianJiError(f"{path}: found no host, {WANTED}, in each line")
    return places


def _add(places: dict[str, int | None], text: str, where: str) -> None:
    match = LINE.fullmatch(text)
    if match is None:
        raise TianJiError(f"{where}: found {text[:80]!r}, {WANTED}")
    host, given = match["host"], match["slots"] or match["most"]
    if host in places and (given is not None or places[host] is not None):
        raise TianJiError(f"{where}: found {host} a second time, want one line with all its places")
    places[host] = None if given is None else int(given)
