"""Puts a recorder beside the roles of one process; without it nothing of this is even loaded."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tianji.config import Config
from tianji.core.counts import Count
from tianji.core.tracer import What
from tianji.observe.trace import ENDING, FOLDER
from tianji.observe.trace.format import ROWS_PER_SECOND, Heading, Wait
from tianji.observe.trace.recorder import Recorder, Track
from tianji.roles import Actor, Buffer, Learner
from tianji.roles.episodes import Clock
from tianji.roles.role import Role

WAITS = {  # as a trace has them: by the dependencies of the paper
    Count.WAITED_WEIGHTS: Wait.WEIGHTS,
    Count.WAITED_TRAJECTORIES: Wait.TRAJECTORIES,
    Count.WAITED_BATCH: Wait.TRAJECTORIES,
    Count.WAITED_GRADIENTS: Wait.LEARNERS,
    Count.WAITED_PARAMETERS: Wait.GROUPS,
    Count.WAITED_ACTIONS: Wait.BALANCE,  # an inference role is not traced
    Count.WAITED_STEPS: Wait.BALANCE,
    Count.WAITED_ORDER: Wait.GROUPS,
    Count.WAITED_ROOM: Wait.BALANCE,
}


def record(
    roles: Sequence[Role],
    config: Config,
    folder: Path,
    home: str,
    clock: Clock = time.monotonic,
    life: int = 0,
) -> TraceRecording | None:
    """Records the roles of a process; None, with a word in its log, where the disk refuses.

    Each life of a process that was replaced has a file of its own.
    """
    seconds = config.exp.trace_seconds
    assert seconds is not None
    heading = Heading(
        home=home,
        roles=tuple(role.name for role in roles),
        host=os.environ.get("TIANJI_HOST") or platform.node(),
        pid=os.getpid(),
        seconds=seconds,
        capacity=max(1, round(seconds * ROWS_PER_SECOND)),
        offset=0.0 if clock is time.monotonic else clock() - time.monotonic(),
        recorded_at=time.strftime("%Y-%m-%d %H:%M:%S"),
    )
    try:
        name = f"{home}.life{life}" if life else home
        recorder = Recorder(folder / FOLDER / f"{name}{ENDING}", heading)
    except OSError as error:
        print(f"{home} is not traced: {error.filename}: {error.strerror}", file=sys.stderr)
        return None
    return TraceRecording(recorder, roles)


class TraceRecording:
    """What the roles of one process do, in a file."""

    def __init__(self, recorder: Recorder, roles: Sequence[Role]) -> None:
        self._recorder = recorder
        self._tracks = [Track(recorder, i, *_questions(role)) for i, role in enumerate(roles)]
        for role, track in zip(roles, self._tracks, strict=True):
            role.tracer = track
            if isinstance(role, Learner):
                for part in (role.exchange, role.fusion):
                    if part is not None:
                        part.tracer = track

    def resumed(self, roles: Sequence[Role]) -> None:
        """What is in flight now was sent by an earlier process."""
        for role, track in zip(roles, self._tracks, strict=True):
            if isinstance(role, Buffer):
                track.skip([inbox.waiting for inbox in role.trajectories])

    def replaced(self, roles: Sequence[Role], moved: Sequence[Sequence[int]]) -> None:
        """So many trajectories were sent, or taken of each actor, by a process that was lost."""
        for role, track, numbers in zip(roles, self._tracks, moved, strict=True):
            if isinstance(role, Buffer):
                track.skip([-n for n in numbers])
            elif isinstance(role, Actor):
                track.go_on(What.TRAJECTORY, numbers[0])

    def close(self) -> None:
        """Nothing more will come."""
        for track in self._tracks:
            track.close()
        self._recorder.close()


def _questions(role: Role) -> tuple[Callable[[], Wait], Callable[[], int]]:
    """Why it has nothing to do, right after a step that said so; and its version."""
    return lambda: WAITS[role.waits_for()], lambda: _version_of(role)


def _version_of(role: Role) -> int:
    if isinstance(role, Buffer):
        return role.handed
    return role.version if isinstance(role, Actor | Learner) else 0
