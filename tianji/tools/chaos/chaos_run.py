"""The test itself: starts the run, does what the schedule says, and looks after every fault."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tianji.core import checkpoint
from tianji.core.errors import USER_MISTAKE, TianJiError
from tianji.roles.role_specs import Kind, kind_of
from tianji.tools.chaos import processes
from tianji.tools.chaos.fault_injection import FaultInjection
from tianji.tools.chaos.invariants import GONE_SECONDS, Ending, FaultOutcome, Record, judge
from tianji.tools.chaos.run_under_test import Row, RunUnderTest
from tianji.tools.chaos.schedule import CHANGING, IN_ENVIRONMENT, LASTING, RUN, Fault, Strike
from tianji.tools.chaos.settings import ChaosSettings
from tianji.tools.child_run import LAST_LINES, RunFailed

LOOK_SECONDS = 0.02
START_SECONDS = 300.0  # for a run to begin to learn
PATIENCE_SECONDS = 60.0  # for a run to go on after a fault
END_SECONDS = 60.0  # for a run to end after it was told to
Tell = Callable[[FaultOutcome], None]


@contextmanager
def facing(settings: ChaosSettings, folder: Path, tell: Tell) -> Iterator[ChaosRun]:
    """A run that is started for the test; nothing of it is there behind the block."""
    with tempfile.TemporaryDirectory(prefix="tianji-chaos-") as orders:
        test = ChaosRun(settings, folder, Path(orders), tell)
        try:
            yield test
        finally:
            test.close()


class ChaosRun:
    """One run and the faults that it is given."""

    def __init__(self, settings: ChaosSettings, folder: Path, orders: Path, tell: Tell) -> None:
        self._settings, self._tell = settings, tell
        self._hand = FaultInjection(orders, settings.homes)
        words = [settings.config, "--quiet", "--engine", "process"]
        words += [word for override in settings.overrides for word in ("--set", override)]
        self._subject = RunUnderTest(words, folder, orders)
        subject = self._subject
        self.record = Record(settings.bounds, subject.rows, subject.usages, [])
        self._began = 0.0  # training, on the clock

    def run(self) -> None:
        """Gives one fault after the other, until the time is over or the run does not go on."""
        self._wait_for_training()
        for strike in self._settings.strikes:
            if not self._passes(strike.pause):
                return
            trial = self._endure(strike)
            self.record.trials.append(trial)
            self._note_broken(trial)
            self._tell(trial)
            if trial.back is None and not trial.undone:
                return

    def _wait_for_training(self) -> None:
        subject = self._subject
        self._until(lambda: bool(subject.rows) and self._everyone(), START_SECONDS)
        if subject.has_ended() or not subject.rows:
            said = "\n".join(subject.words().rstrip().splitlines()[-LAST_LINES:])
            if subject.process.poll() == USER_MISTAKE:
                raise TianJiError(said.removeprefix("tianji: "))
            raise RunFailed(f"the run did not begin to learn:\n{said}")
        self._began = time.monotonic()

    def _everyone(self) -> bool:
        """Whether every process is there."""
        return set(self._settings.homes) <= set(self._subject.workers)

    def _passes(self, seconds: float) -> bool:
        """Lets time go by; False when the run or its time is over."""
        self._until(lambda: False, seconds)
        over = time.monotonic() - self._began > self._settings.seconds
        return not over and not self._subject.has_ended()

    def _endure(self, strike: Strike) -> FaultOutcome:
        """One fault, and what came of it."""
        subject, hand = self._subject, self._hand
        is_whole = self._until(self._everyone, PATIENCE_SECONDS)
        before, last, seen = dict(subject.workers), subject.rows[-1], set(subject.ever)
        now = time.monotonic()
        trial = FaultOutcome(strike, now - self._began, last.updates)
        if not is_whole:
            return trial  # it did not go on after the one before, as it had seemed
        hand.strike(strike, subject.pid, before)
        if strike.fault in IN_ENVIRONMENT - LASTING.keys():
            now = self._obeyed(strike, trial) or now
        if strike.fault in LASTING:
            self._until(lambda: False, strike.seconds)
            hand.undo(strike, subject.pid, subject.workers)
            now = time.monotonic()
        if not trial.undone:
            self._recover(trial, now, before, last)
        trial.replaced = len(subject.ever.keys() - seen)
        return trial

    def _obeyed(self, strike: Strike, trial: FaultOutcome) -> float | None:
        """When an environment did what it was told."""
        hand, home = self._hand, strike.victim
        self._until(lambda: hand.answer(home) is not None, PATIENCE_SECONDS)
        found = hand.answer(home)
        if not found:
            trial.undone = "the actor made no step" if found is None else "no game of others"
        return found

    def _recover(self, trial: FaultOutcome, at: float, before: dict[str, int], last: Row) -> None:
        """Waits until everyone is there and training goes on."""
        subject, hit = self._subject, self._hit(trial.strike)
        dead = [before[home] for home in hit] if trial.strike.fault in CHANGING else []
        if dead and self._until(lambda: not any(map(processes.is_there, dead)), PATIENCE_SECONDS):
            trial.detected = time.monotonic() - at
        acting = {home: self._hand.steps(home) for home in hit if kind_of(home) is Kind.ACTOR}

        def works() -> bool:
            if not self._everyone():
                return False
            if dead and any(subject.workers[home] == before[home] for home in hit):
                return False
            return all(self._hand.steps(home) > made for home, made in acting.items())

        if not self._until(works, PATIENCE_SECONDS):
            return
        back = time.monotonic()
        saved = subject.rows[-1].checkpoints if trial.strike.fault is Fault.DISK else -1
        if self._until(lambda: self._learns(back, last.env_steps, saved), PATIENCE_SECONDS):
            learns_at = time.monotonic()
            trial.back = (back if acting else learns_at) - at

    def _hit(self, strike: Strike) -> list[str]:
        if strike.fault is Fault.ACTORS:
            return [home for home in self._settings.homes if kind_of(home) is Kind.ACTOR]
        return [] if strike.victim == RUN else [strike.victim]

    def _learns(self, since: float, steps: int, saved: int) -> bool:
        """Whether rows seen `since` tell of more updates, and of more steps and checkpoints."""
        rows = [row for row in self._subject.rows if row.at >= since]
        if not rows:
            return False
        more = rows[-1].updates > rows[0].updates and rows[-1].env_steps > steps
        return more and rows[-1].checkpoints > saved

    def _note_broken(self, trial: FaultOutcome) -> None:
        """Names the invariants that do not hold any more."""
        before = {name for other in self.record.trials for name in other.broken}
        verdicts = judge(self.record)
        trial.broken += [v.name for v in verdicts if v.held is False and v.name not in before]

    def end(self) -> None:
        """Tells the run to end, if it has not, and sees what is left of it."""
        subject, asked = self._subject, not self._subject.has_ended()
        told_at = time.monotonic()
        self.calm()
        if asked:
            subject.process.send_signal(signal.SIGTERM)
            self._until(lambda: False, END_SECONDS)  # ends with the run
            seconds = time.monotonic() - told_at
            if not subject.has_ended():
                subject.process.kill()
        else:
            seconds = 0.0
        status = subject.process.wait()
        self._gone()
        self.record.ending = Ending(
            asked,
            status,
            seconds,
            subject.summary(),
            subject.left(),
            subject.segments(),
            self._saved(),
        )

    def _gone(self) -> None:
        deadline = time.monotonic() + GONE_SECONDS
        while self._subject.left() and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)

    def _saved(self) -> str | None:
        with suppress(TianJiError):
            found, _ = checkpoint.newest(self._subject.run)
            return None if found is None else found.folder.name
        return None

    def calm(self) -> None:
        """Ends every fault that lasts."""
        for strike in self._settings.strikes:
            if strike.fault in LASTING:
                self._hand.undo(strike, self._subject.pid, self._subject.workers)

    def close(self) -> None:
        """Leaves nothing behind, whatever happened."""
        self.calm()
        self._subject.close()

    def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Looks on until `condition()` holds, the time is over or the run has ended."""
        deadline = time.monotonic() + seconds
        while True:
            self._subject.look()
            if condition():
                return True
            if self._subject.has_ended() or time.monotonic() >= deadline:
                return False
            time.sleep(LOOK_SECONDS)
