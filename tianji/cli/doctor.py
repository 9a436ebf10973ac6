"""`tianji doctor`: looks at the machine before a run does."""

from __future__ import annotations

import argparse
import sys


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `doctor`."""
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(options: argparse.Namespace) -> int:
    """Prints what was found; the exit status is 1 if something is a problem."""
    from tianji.tools.doctor import Verdict, examine
    from tianji.tools.doctor.findings_text import to_json, to_lines, to_table, worst

    if options.json or not sys.stdout.isatty():
        sections = examine()
        print(to_json(sections) if options.json else to_lines(sections))
    else:
        from rich.console import Console

        console = Console(highlight=False)
        with console.status("looking at this machine"):
            sections = examine()
        console.print(to_table(sections))
    return int(worst(sections) is Verdict.PROBLEM)
