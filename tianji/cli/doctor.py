"""`tianji doctor`: looks at the machine before a run does."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from tianji.tools.doctor.checks import Finding

STYLES = {"-": "dim", "ok": "green", "note": "yellow", "problem": "bold red"}  # from mild to grave
WIDE = 10_000  # columns of a pipe: there every finding is one line, easy to search


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `doctor`."""
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(options: argparse.Namespace) -> int:
    """Prints what was found; the exit status is 1 if something is a problem."""
    from rich.console import Console

    from tianji.tools.doctor.checks import Verdict
    from tianji.tools.doctor.examine import examine

    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)
    if options.json:
        findings = examine()
        print(json.dumps([asdict(each) for each in findings], indent=1))
    else:
        with console.status("looking at this machine"):
            findings = examine()
        console.print(table(findings))
        console.print(sentence(findings))
    return int(any(each.verdict is Verdict.PROBLEM for each in findings))


def table(findings: list[Finding]) -> Table:
    """A row for each finding, with its advice behind it; long ones wrap within their column."""
    from rich.table import Table
    from rich.text import Text

    rows = Table.grid(padding=(0, 2, 0, 0))
    for wraps in (False, False, True):
        rows.add_column(no_wrap=not wraps)
    for i, each in enumerate(findings):
        ends = i + 1 == len(findings) or findings[i + 1].section != each.section
        text, style = Text(each.found), STYLES[each.verdict]
        if each.advice:
            text.append(f" -> {each.advice}", style)
        rows.add_row(Text(each.verdict, style), each.what, text, end_section=ends)
    return rows


def sentence(findings: list[Finding]) -> str:
    """The findings counted, as in `31 things looked at: 1 problem, 2 notes`."""
    counts = Counter(each.verdict.value for each in findings)
    parts = [f"{n} {name}{'s' * (n != 1)}" for name in ("problem", "note") if (n := counts[name])]
    return f"{len(findings)} things looked at: {', '.join(parts) or 'nothing to do'}"
