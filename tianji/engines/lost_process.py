"""Processes that end before the run does: without whom training goes on, and what is said of them.

For a reducer and an evaluator it makes no difference how the process went, killed or with an
exception. Both `process` and `mpi` go by that; `mpi` also does without an actor that was killed,
if others are beside it (`ranks.py`). The local engine has no processes to lose.
"""

from __future__ import annotations

import signal
from pathlib import Path

from tianji.config import Config
from tianji.core.errors import SAYS_MISTAKE, SAYS_SPENT, USER_MISTAKE
from tianji.core.json_file import read_end
from tianji.roles.role_specs import Kind, kind_of

LAST_LINES = 40  # of a failed role's log that are shown
MEANT = {SAYS_MISTAKE: USER_MISTAKE, SAYS_SPENT: 1}  # as the exit status of a command


class RoleFailed(Exception):
    """A role ended before the run did; the text holds its name and how it ended."""

    def __init__(self, text: str, users_mistake: bool = False) -> None:
        super().__init__(text)
        self.users_mistake = users_mistake


def is_spare(home: str, config: Config) -> bool:
    """Whether training goes on without a process, however it went.

    A reducer that counts to the end of the run is needed: without it the run would have none.
    """
    kind = kind_of(home)
    return kind is Kind.EVALUATOR or (kind is Kind.REDUCER and config.max_fusions is None)


def survived(home: str, how: str, words: str) -> str:
    """What is said when training goes on; `how` the process went, and its last words if any."""
    apart = kind_of(home) is Kind.REDUCER
    text = f"{how}; training goes on without it"
    text += ", and the groups are not averaged any more" if apart else ""
    return f"{text}; its last words:\n{words}" if words else text


def manner(status: int) -> str:
    """How a process ended, by its exit status."""
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    if not status:
        return "ended before the run did"
    return f"failed with exit status {MEANT.get(status, status)}"


def failure(home: str, status: int, words: str) -> RoleFailed:
    """That a process has ended with this exit status, and its own last words."""
    text = f"{home} {manner(status)}:\n{words or 'it left no word in its log'}"
    return RoleFailed(text, status == SAYS_MISTAKE)


def last_words(log: Path, begin: int = 0) -> str:
    """The last lines of a log, of those that were written after `begin`."""
    try:
        lines = read_end(log, begin).splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-LAST_LINES:])
