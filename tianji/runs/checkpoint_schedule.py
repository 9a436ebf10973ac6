"""The launcher's side of checkpoints: says when, seals what roles wrote, keeps the right ones."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tianji import __version__
from tianji.config import Config
from tianji.core import checkpoint, disk, json_file
from tianji.core.checkpoint import Checkpoint
from tianji.core.counts import Count, counts_state
from tianji.core.errors import TianJiError
from tianji.core.json_file import read_json
from tianji.core.state import State
from tianji.observe.watch import Progress
from tianji.roles.role_specs import Kind, is_first_learner, kind_of, role_name, roles_of
from tianji.roles.saving import ANY_SIZE, LAST, LEFT_OUT, STORE, writing

ENOUGH_EPISODES = 20  # for a mean return to mean something
PATIENCE_SECONDS = 120.0  # from an order until a role that has not answered is named
LARGEST_COPY = 256 << 20  # bytes of samples that are copied while training goes on

Facts = dict[str, Any]


class Engine(Protocol):
    """Whoever passes orders on to the roles."""

    def order(self, number: int, largest_store: int) -> None:
        """Asks every role to write its part of checkpoint `number`."""


@dataclass(frozen=True)
class Ordered:
    """A checkpoint that the roles are busy with."""

    number: int
    at: float  # on the monotonic clock
    facts: Facts  # what the launcher knew at that moment
    score: float | None
    lives: Mapping[str, int]  # of each role, by then


class CheckpointSchedule:
    """Orders a checkpoint when one is due, and never a second before the first is done.

    Nothing that goes wrong with a checkpoint ends a run: it is said, and the older ones stay.
    """

    def __init__(
        self,
        config: Config,
        folder: Path,
        engine: Engine,
        facts: Callable[[], Facts],
        tell: Callable[[float], None],
        warn: Callable[[str], None],
        version: int = 0,
    ) -> None:
        self._config = config
        self._folder = folder
        self._engine = engine
        self._facts = facts
        self._tell = tell  # that another one is whole, and the seconds that it took
        self._warn = warn
        self._number = max((checkpoint.number(f) for f in checkpoint.folders_of(folder)), default=0)
        self._saved_at = time.monotonic()
        self._saved_version = version  # updates behind the last one, if the run goes on from one
        self._ordered: Ordered | None = None
        self._reminded = 0  # the last checkpoint that a role was slow with
        self._failing: str | None = None  # why the last one was not written

    def tick(self, progress: Progress) -> None:
        """Orders what is due, and seals what is complete; nearly always it does neither."""
        if self._ordered is not None:
            self._look_after(self._ordered, progress)
        elif progress.version and self._is_due(progress):
            self._order(progress)

    def close(self, progress: Progress) -> Checkpoint | None:
        """Seals what the roles wrote at their end, if the first learners were among them."""
        self._give_up()
        folder = self._checkpoints / LAST
        names = [role.name for role in roles_of(self._config)]
        absent = self._unwritten(folder, names)
        lost = any(is_first_learner(name) for name in absent)
        if lost or (absent and progress.started_at is None):
            disk.FILES.remove(folder)  # of a run that never began nothing is worth more
            return None
        if new := [name for name in absent if name not in progress.lost]:
            self._warn(f"{', '.join(new)} saved nothing at the end, and goes on from before")
        self._number += 1
        last = self._ordered_now(progress)
        if not self._fill_in(folder, absent, progress):
            return None
        try:
            same = self._same_as_newest(folder)
        except TianJiError as error:
            self._fail(folder, str(error))
            return None
        if same is not None:
            disk.FILES.remove(folder)
            return same
        return self._seal(folder, last)

    def _fill_in(self, folder: Path, absent: Sequence[str], progress: Progress) -> bool:
        """Writes what is known of roles that could not say it themselves; False if that fails."""
        try:
            for name in absent:
                part = self._remembered(name) | {"counts": counts_state(progress.counts[name])}
                checkpoint.write_part(folder, name, part, disk.FILES)
        except OSError as error:
            self._fail(folder, error.strerror or str(error))
            return False
        return True

    def _same_as_newest(self, folder: Path) -> Checkpoint | None:
        """The newest checkpoint, if nothing was trained since it was taken."""
        version = checkpoint.read_written(folder, role_name(Kind.LEARNER))["version"]
        for older in reversed(checkpoint.folders_of(self._folder)):
            try:
                newest = checkpoint.open_checkpoint(older)
                same = (newest.version, newest.env_steps) == (version, _env_steps(folder))
                if not same or newest.manifest["replay"] != "kept":
                    return None
                checkpoint.verify(newest)
            except (TianJiError, OSError):
                return None
            return newest
        return None

    def _remembered(self, name: str) -> State:
        """What the newest checkpoint knows of a role that died, less the episodes in progress."""
        for older in reversed(checkpoint.folders_of(self._folder)):
            try:
                part = checkpoint.open_checkpoint(older).part(name)
            except (TianJiError, OSError):
                continue
            if part is not None and "env" in part:
                return part | {"env": None}
        return {}

    @property
    def _checkpoints(self) -> Path:
        return self._folder / "checkpoints"

    def _is_due(self, progress: Progress) -> bool:
        updates, seconds = self._config.save_freq, self._config.exp.save_seconds
        if updates is not None:
            return progress.version >= self._saved_version + updates
        return seconds is not None and time.monotonic() - self._saved_at >= seconds

    def _order(self, progress: Progress) -> None:
        self._number += 1
        self._ordered = self._ordered_now(progress)
        self._saved_at, self._saved_version = time.monotonic(), progress.version
        largest = {"auto": LARGEST_COPY, "always": ANY_SIZE, "never": 0}
        self._engine.order(self._number, largest[self._config.exp.save_replay])

    def _ordered_now(self, progress: Progress) -> Ordered:
        lives = dict(progress.lives)
        return Ordered(self._number, time.monotonic(), self._facts(), _score(progress), lives)

    def _look_after(self, ordered: Ordered, progress: Progress) -> None:
        folder = self._checkpoints / writing(ordered.number)
        counts = progress.counts
        replaced = _replaced(ordered, progress)
        names = [name for name in self._alive(progress) if name not in replaced]
        silent = [name for name in names if counts[name][Count.SAVED] != ordered.number]
        ended = [name for name in silent if self._has_ended(name)]
        if len(ended) < len(silent):
            self._remind(ordered, [name for name in silent if name not in ended])
            return
        self._ordered = None
        unwritten = self._unwritten(folder, replaced)
        if any(kind_of(name) is not Kind.ACTOR for name in unwritten):
            disk.FILES.remove(folder)  # nobody can say what a learner or a buffer had in mind
            return
        errors = {int(counts[name][Count.SAVE_ERROR]) for name in names if name not in ended} - {0}
        try:
            self._adopt(folder, ended)
        except OSError as error:
            errors.add(error.errno or errno.EIO)
        if errors:
            self._fail(folder, _why(min(errors)))
        elif self._fill_in(folder, progress.lost + unwritten, progress):
            self._seal(folder, ordered)

    def _unwritten(self, folder: Path, names: Sequence[str]) -> list[str]:
        """Those who were lost before they had written their parts."""
        return [name for name in names if not (folder / f"{name}.sha256").exists()]

    def _alive(self, progress: Progress) -> list[str]:
        names = [role.name for role in roles_of(self._config)]
        return [name for name in names if name not in progress.lost]

    def _has_ended(self, name: str) -> bool:
        """Whether a role of a group that ended before others has written its last part."""
        done = (self._checkpoints / LAST / f"{name}.sha256").exists()
        return self._config.n_groups > 1 and done

    def _adopt(self, folder: Path, ended: list[str]) -> None:
        """Adds what roles that have ended wrote at their end; they are as they were then."""
        for name in ended:
            for path in (self._checkpoints / LAST).glob(f"{name}.*"):
                (folder / path.name).unlink(missing_ok=True)
                os.link(path, folder / path.name)

    def _remind(self, ordered: Ordered, silent: list[str]) -> None:
        """Says once that a role does not answer: until it does there are no checkpoints."""
        if time.monotonic() - ordered.at < PATIENCE_SECONDS or ordered.number == self._reminded:
            return
        self._reminded = ordered.number
        self._warn(f"no checkpoint can be taken while {', '.join(silent)} does not answer")

    def _seal(self, folder: Path, ordered: Ordered) -> Checkpoint | None:
        try:
            sealed = checkpoint.seal(
                folder,
                checkpoint.folder_for(self._folder, ordered.number, _env_steps(folder)),
                {"run.json": ordered.facts, "config.json": self._identity()},
                self._about(folder, ordered),
                disk.FILES,
            )
            checkpoint.prune(self._folder, self._config.exp.save_keep, disk.FILES)
        except (OSError, TianJiError) as error:
            self._fail(folder, getattr(error, "strerror", None) or str(error))
            return None
        self._failing = None
        self._tell(time.monotonic() - ordered.at)
        return sealed

    def _about(self, folder: Path, ordered: Ordered) -> Facts:
        """What the manifest says beside its list of files."""
        groups = range(self._config.n_groups)
        firsts = [role_name(Kind.LEARNER, 0, group) for group in groups]
        versions = [checkpoint.read_written(folder, name)["version"] for name in firsts]
        stores = list(folder.glob(f"*{STORE}.sha256"))  # complete ones
        return {
            "tianji": __version__,
            "config": self._config.name,
            "number": ordered.number,
            "version": versions[0],
            "updates": sum(versions),
            "env_steps": _env_steps(folder),
            "score": ordered.score,
            "replay": "kept" if stores else self._why_without(folder),
        }

    def _identity(self) -> Facts:
        about = read_json(self._folder / "config.json")
        if not about:
            raise TianJiError("the run's config.json cannot be read")
        return about

    def _why_without(self, folder: Path) -> str:
        if self._config.exp.save_replay == "never":
            return "left out: exp.save_replay is 'never'"
        for note in folder.glob(f"*{LEFT_OUT}"):
            return f"left out: {json_file.read_text(note)}"
        if folder.name == LAST:
            return "left out: they could not be written, see logs/"
        return f"left out: more than {LARGEST_COPY >> 20} MB"

    def _fail(self, folder: Path, reason: str) -> None:
        disk.FILES.remove(folder)
        if reason == self._failing:
            return  # said once; it would be said at every interval
        self._failing = reason
        older = checkpoint.folders_of(self._folder)
        kept = f"the newest is still {older[-1].name}" if older else "there is none yet"
        self._warn(f"a checkpoint could not be written: {reason}; training goes on, {kept}")

    def _give_up(self) -> None:
        """What was being written when the run ended is not needed any more."""
        if self._ordered is not None:
            disk.FILES.remove(self._checkpoints / writing(self._ordered.number))
            self._ordered = None


def _replaced(ordered: Ordered, progress: Progress) -> list[str]:
    """Roles that were lost since; those that take their places know nothing of the order."""
    return [name for name, life in progress.lives.items() if life != ordered.lives.get(name, 0)]


def left_out(config: Config, n_bytes: int) -> str | None:
    """Which checkpoints will not hold a full store of this size; None: all will."""
    how = config.exp.save_replay
    if how == "never":
        return "checkpoints leave them out: exp.save_replay is 'never'"
    if how == "auto" and n_bytes > LARGEST_COPY:
        return (
            f"checkpoints leave more than {LARGEST_COPY >> 20} MB out while training goes on "
            "(exp.save_replay='always' keeps them), and a resumed run warms up again"
        )
    return None


def _why(error: int) -> str:
    """What an errno of `saving` says; of a state() that failed it says only that it did."""
    return "a state() failed, see logs/" if error == errno.EINVAL else os.strerror(error)


def _score(progress: Progress) -> float | None:
    """By which the best is kept: won games or the mean return, once it is not the luck of a few."""
    if len(progress.returns) < ENOUGH_EPISODES:
        return None
    return progress.mean_return if progress.win_ratio is None else progress.win_ratio


def _env_steps(folder: Path) -> int:
    """Environment steps made by then, from what the actors wrote."""
    parts = (path.stem for path in folder.glob("actor-*.safetensors"))
    return sum(int(checkpoint.read_written(folder, p)["counts"]["produced"]) for p in parts)
