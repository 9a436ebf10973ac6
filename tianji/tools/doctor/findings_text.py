"""The doctor's findings as a table in a terminal, as lines in a pipe, or as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tianji import __version__
from tianji.tools.doctor.finding import Finding, Section, Verdict

if TYPE_CHECKING:
    from rich.console import RenderableType

STYLES = {
    Verdict.ABSENT: "dim",
    Verdict.OK: "green",
    Verdict.NOTE: "yellow",
    Verdict.PROBLEM: "bold red",
}


def to_json(sections: Iterable[Section]) -> str:
    """A list with one object per finding."""
    rows = [
        {
            "section": section.name,
            "what": finding.what,
            "found": finding.found,
            "verdict": finding.verdict.value,
            "advice": finding.advice,
        }
        for section in sections
        for finding in section.findings
    ]
    return json.dumps(rows, indent=1)


def to_lines(sections: Iterable[Section]) -> str:
    """One line per finding: easy to search and to send to somebody."""
    lines = []
    width = max((len(finding.what) for finding in _all(sections)), default=0)
    for finding in _all(sections):
        advice = f" -> {finding.advice}" if finding.advice else ""
        lines.append(f"{finding.verdict.value:<7} {finding.what:<{width}}  {finding.found}{advice}")
    return "\n".join([*lines, verdict(sections)])


def to_table(sections: Iterable[Section]) -> RenderableType:
    """For a terminal of any width: long findings wrap within their column."""
    from rich.console import Group
    from rich.text import Text

    names = max((len(finding.what) for finding in _all(sections)), default=0)
    parts: list[RenderableType] = [Text(f"tianji doctor {__version__}", "bold")]
    for section in sections:
        parts += [Text(f"\n{section.name}", "bold"), _rows(section, names)]
    return Group(*parts, Text(f"\n{verdict(sections)}", STYLES[worst(sections)]))


def _rows(section: Section, names: int) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for width in (len("problem"), names, None):
        table.add_column(min_width=width, no_wrap=width is not None)
    for finding in section.findings:
        style = STYLES[finding.verdict]
        text = Text(finding.found)
        if finding.advice:
            text.append(f"\n-> {finding.advice}", style)
        table.add_row(Text(finding.verdict.value, style), finding.what, text)
    return table


def verdict(sections: Iterable[Section]) -> str:
    """The findings in one sentence."""
    counts = Counter(finding.verdict for finding in _all(sections))
    parts = [
        f"{counts[kind]} {name}{'' if counts[kind] == 1 else 's'}"
        for kind, name in ((Verdict.PROBLEM, "problem"), (Verdict.NOTE, "note"))
        if counts[kind]
    ]
    looked = f"{sum(counts.values())} things looked at"
    return f"{looked}: {', '.join(parts) or 'nothing to do'}"


def worst(sections: Iterable[Section]) -> Verdict:
    """The gravest verdict of all."""
    order = list(Verdict)
    return max((each.verdict for each in _all(sections)), key=order.index, default=Verdict.OK)


def _all(sections: Iterable[Section]) -> list[Finding]:
    return [finding for section in sections for finding in section.findings]
