"""Builds the page: one HTML file that needs nothing beside it, neither a server nor a network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import time
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from tianji import __version__
from tianji.core import atomic_file
from tianji.core.errors import TianJiError
from tianji.observe.report.groups import differing, groups_of
from tianji.observe.report.run_files import Object
from tianji.observe.report.run_reader import MOST_POINTS, RunReader, refuse_other

GENERATOR = '<meta name="generator" content="tianji report'  # by which we know a page of ours
POINTS_IN_ALL = 4_000  # of each kind of curve, however many runs are compared
FEWEST_POINTS = 100


def gather(runs: Sequence[str | Path]) -> Object:
    """Everything the page shows of these run folders, as one JSON document."""
    folders = _folders(runs)
    points = max(FEWEST_POINTS, min(MOST_POINTS, POINTS_IN_ALL // len(folders)))
    found = []
    for folder in folders:
        reader = RunReader(folder)
        reader.refresh()
        found.append(reader.document(points))
    return data_of(found)


def save(data: Object, out: str | Path | None = None) -> Path:
    """Writes the page of what was gathered; returns where it lies."""
    if out is None:
        runs = data["runs"]
        out = Path(runs[0]["folder"] if len(runs) == 1 else ".") / "report.html"
    path = Path(out)
    _refuse_foreign(path)
    text = page(data)
    with atomic_file.explained("name another with --out FILE"):
        atomic_file.write(path, text)
    return path


def data_of(runs: Sequence[Object]) -> Object:
    """The data of some runs with what they come to together."""
    return {
        "tianji": __version__,
        "made": time.strftime("%Y-%m-%d %H:%M"),
        "runs": list(runs),
        "groups": groups_of(runs),
        "differing": differing(runs),
    }


def page(data: Object | None) -> str:
    """The page with its data inside; without any it asks the server it came from, again and again.

    Nothing in the data can become a part of the page: its `<` are escaped, the script sets text
    only, and the policy admits no script but this one, by its hash.
    """
    names = "TianJi" if data is None else ", ".join(run["name"] for run in data["runs"][:3])
    return _filled(
        _part("page.html"),
        {
            "GENERATOR": f'{GENERATOR} {__version__}">',
            "POLICY": policy(live=data is None),
            "TITLE": html.escape(f"{names} · report" if data else "TianJi · live"),
            "STYLE": _part("page.css"),
            "DATA": "null" if data is None else embedded(data),
            "SCRIPT": _part("page.js"),
        },
    )


@cache
def _part(name: str) -> str:
    return (files("tianji.observe.report") / name).read_text(encoding="utf-8")


def _filled(template: str, parts: dict[str, str]) -> str:
    """The template with each `%NAME%` replaced once, and never inside of what was filled in."""
    pieces = template.split("%")
    assert set(pieces[1::2]) == set(parts), pieces[1::2]
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def embedded(data: Object) -> str:
    """JSON that can stand inside of a script element: no `<` and nothing that ends a line."""
    plain = json.dumps(data, allow_nan=False, separators=(",", ":"))  # ASCII only
    return plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def policy(live: bool) -> str:
    """What a browser may do for this page: run this script and this style, and nothing else."""
    rules = {
        "default-src": "'none'",
        "script-src": _hashed("page.js"),
        "style-src": _hashed("page.css"),
        "img-src": "data:",
        "connect-src": "'self'" if live else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _hashed(name: str) -> str:
    digest = hashlib.sha256(_part(name).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _folders(runs: Sequence[str | Path]) -> list[Path]:
    """The folders of these runs, each once."""
    if not runs:
        raise TianJiError("report: want the folder of at least one run, got none")
    found: dict[Path, Path] = {}
    for run in runs:
        folder = Path(run)
        refuse_other(folder)
        found.setdefault(folder.resolve(), folder)
    return list(found.values())


def _refuse_foreign(path: Path) -> None:
    """Raises unless `path` is free or holds a report."""
    advice = "name another file with --out"
    if path.is_dir():
        raise TianJiError(f"{path} is a folder: {advice}, as in --out {path / 'report.html'}")
    if not os.path.lexists(path):
        return
    ours = False
    if path.is_file():  # to open a pipe would be to wait for it
        try:
            with path.open("rb") as file:
                ours = GENERATOR.encode() in file.read(2_000)
        except OSError as error:
            raise TianJiError(f"{path} cannot be replaced: {error.strerror}: {advice}") from error
    if not ours:
        raise TianJiError(f"{path} exists and is not a report: {advice}, or move it away")
