"""Repeats a recorded run: what it needs, and whether the weights that it ended with come again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tianji.config import Config, reload
from tianji.core.algorithm import Saved
from tianji.core.errors import TianJiError
from tianji.core.json_file import read_json
from tianji.engines.replay import Followed, Left, RunReplay
from tianji.job.preflight import try_out
from tianji.models.precision import as_decided
from tianji.observe import replay_record
from tianji.roles.role_specs import roles_of
from tianji.runs.trust import refuse_strange
from tianji.runs.weights_file import FINAL, read


@dataclass(frozen=True)
class Replayed:
    """How far a replay has come, and what it was compared with besides the record."""

    followed: Followed
    final: bool  # the weights that the run ended with came out again

    @property
    def exit_status(self) -> int:
        """0 if all of the recorded run was repeated."""
        return 1 if self.followed.missing else 0


def replay(
    folder: Path, tick: Callable[[int], None] = lambda _: None, trust: bool = False
) -> Replayed:
    """Trains a recorded run again, with the weights of all roles where they were; bit for bit.

    Raises where it is no longer the same run. An exception of a role that ended the run is raised
    again. Nothing is written. `trust` is as of `tianji.load`.
    """
    config = _config_of(folder, trust)
    records = {
        spec.name: replay_record.read(folder, spec.name, config) for spec in roles_of(config)
    }
    formats = {asked: words for rows in records.values() for asked, words in rows.formats.items()}
    with as_decided(formats):
        followed = RunReplay(try_out(config), records).follow(tick)
    return Replayed(followed, _compare(folder, followed))


def _config_of(folder: Path, trust: bool) -> Config:
    file = folder / "config.json"
    about = read_json(file)
    if not isinstance(about.get("config"), dict):
        raise TianJiError(f"{folder} holds no run to replay: {file} is missing, or not ours")
    if not (folder / replay_record.FOLDER).is_dir():
        raise TianJiError(
            f"{folder} has no record: only what was trained with `tianji train --record` can be "
            "replayed"
        )
    config = reload(about["config"], str(file))
    refuse_strange(config, about, folder, trust)
    return config


def _compare(folder: Path, followed: Followed) -> bool:
    """Whether the run's last weights are these; they are of another moment where it was resumed."""
    final = _final_of(folder)
    if final is None or final.version != followed.updates:
        return False
    if not np.array_equal(final.weights, followed.weights):
        raise Left(
            f"the replay left the record at its end: after {followed.updates:,} updates the "
            f"weights are not those of {folder / 'checkpoints' / FINAL}"
        )
    return True


def _final_of(folder: Path) -> Saved | None:
    path = folder / "checkpoints" / FINAL
    return read(path) if path.exists() else None
