"""What a check found: one line of the doctor's table."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Verdict(enum.Enum):
    """How a finding is to be taken."""

    ABSENT = "-"  # not there, and nothing is wrong about that
    OK = "ok"
    NOTE = "note"  # runs work, but slower or with less than the machine could give
    PROBLEM = "problem"  # some runs, or all, will fail


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    found: str
    verdict: Verdict = Verdict.OK
    advice: str = ""  # what to do; empty if there is nothing to do


@dataclass(frozen=True)
class Section:
    """Findings that belong together."""

    name: str
    findings: tuple[Finding, ...]


def ok(what: str, found: str) -> Finding:
    """Nothing to do."""
    return Finding(what, found)


def absent(what: str, advice: str) -> Finding:
    """Not there; the advice is for whoever wants it."""
    return Finding(what, "not installed", Verdict.ABSENT, advice)


def note(what: str, found: str, advice: str) -> Finding:
    """Worth knowing."""
    return Finding(what, found, Verdict.NOTE, advice)


def problem(what: str, found: str, advice: str) -> Finding:
    """Worth mending before anything else."""
    return Finding(what, found, Verdict.PROBLEM, advice)
