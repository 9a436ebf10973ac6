"""The report of one or more runs as a single page: `tianji.observe.report.build(["runs/..."])`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

LIVE_PORT = 8471
"""Where `tianji train --dashboard` shows the same page, unless told otherwise."""


def build(runs: Sequence[str | Path], out: str | Path | None = None) -> Path:
    """Writes the report of one or more runs; returns where it lies.

    Without `out` that is `report.html` in the folder of a single run, or here for several. A
    report is replaced by a newer one; no other file is ever overwritten.
    """
    from tianji.observe.report.page import gather, save  # late: it loads numpy

    return save(gather(runs), out)


__all__ = ["LIVE_PORT", "build"]
