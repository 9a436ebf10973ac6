"""How each fault is done to the processes of a run, and undone where it lasts."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from tianji.roles.role_specs import Kind, kind_of
from tianji.tools.chaos.env_orders import Orders, Word, orders_of
from tianji.tools.chaos.schedule import LASTING, Fault, Strike

SLOWER_SECONDS = 0.02  # that each step of a slow environment takes longer
CODES = {fault: place for place, fault in enumerate(Fault)}  # as orders say them


class FaultInjection:
    """Does what a schedule says, to the processes that are there."""

    def __init__(self, folder: Path, homes: Iterable[str]) -> None:
        actors = [home for home in homes if kind_of(home) is Kind.ACTOR]
        self.orders: Mapping[str, Orders] = {home: orders_of(folder, home) for home in actors}

    def strike(self, strike: Strike, launcher: int, workers: Mapping[str, int]) -> None:
        """Begins a fault; `workers` are the processes by their role."""
        match strike.fault:
            case Fault.KILL:
                _signal(workers[strike.victim], signal.SIGKILL)
            case Fault.ACTORS:
                for home in self.orders:
                    _signal(workers[home], signal.SIGKILL)
            case Fault.SEGFAULT:
                _signal(workers[strike.victim], signal.SIGSEGV)
            case Fault.STOP:
                _signal(workers[strike.victim], signal.SIGSTOP)
            case Fault.DISK:
                for pid in (launcher, *workers.values()):
                    _limit_files(pid, 0)
            case Fault.SLOW:
                self.orders[strike.victim].words[Word.PAUSE] = SLOWER_SECONDS
            case _:
                self.orders[strike.victim].give(CODES[strike.fault])

    def undo(self, strike: Strike, launcher: int, workers: Mapping[str, int]) -> None:
        """Ends a fault that lasts; to end one twice does no harm."""
        if strike.fault is Fault.STOP and strike.victim in workers:
            _signal(workers[strike.victim], signal.SIGCONT)
        elif strike.fault is Fault.SLOW:
            self.orders[strike.victim].words[Word.PAUSE] = 0.0
        elif strike.fault is Fault.DISK:
            for pid in (launcher, *workers.values()):
                _limit_files(pid, None)
        assert strike.fault in LASTING

    def steps(self, home: str) -> float:
        """Steps that the environments of an actor have made, whichever process made them."""
        return self.orders[home].words[Word.STEPS]

    def answer(self, home: str) -> float | None:
        """When the last order to an actor was carried out: 0 where it cannot be, None not yet."""
        words = self.orders[home].words
        if abs(words[Word.OBEYED]) != words[Word.NUMBER]:
            return None
        return words[Word.OBEYED_AT] if words[Word.OBEYED] > 0 else 0.0


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _limit_files(pid: int, most_bytes: int | None) -> None:
    """Every write beyond so many bytes of a file fails, as on a full disk; None: none does."""
    with suppress(ProcessLookupError):
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        soft = hard if most_bytes is None else most_bytes
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
