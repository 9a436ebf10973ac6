"""`tianji report RUN [RUN ...]`: one page about a run, or about several side by side."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `report`."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="where to write the page (default: report.html in the folder of a single run, "
        "or here for several)",
    )


def run(options: argparse.Namespace) -> int:
    """Writes the page; prints what it comes to, and where it lies."""
    from tianji.core import terminal
    from tianji.observe.report.page import gather, save
    from tianji.observe.report.report_text import describe

    data = gather(options.runs)
    path = save(data, options.out)
    print(describe(data, terminal.width()))
    print(path)
    return 0
