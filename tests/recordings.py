"""Recordings made by hand: the files that the processes of a run with `--trace` leave."""

import json

from tianji.core.tracer import What
from tianji.observe.trace import FOLDER
from tianji.observe.trace.format import Doing, Heading, Wait
from tianji.observe.trace.recorder import Recorder
from tianji.observe.trace.trace_reader import read


def folder_of_a_run(folder):
    """Makes a folder that of a run without recordings."""
    (folder / "config.json").write_text(json.dumps({"engine": "process"}))
    return folder


def heading(home="actor-0.0", roles=None, capacity=1000, seconds=60.0, offset=0.0):
    roles = (home,) if roles is None else roles
    return Heading(home, roles, "here", 7, seconds, capacity, offset, "2026-01-01 10:00:00")


def record(run, about, *rows):
    """A file of these rows: (role, kind, began, ended, number, version, what, peer)."""
    recorder = Recorder(run / FOLDER / f"{about.home}.trace", about)
    for row in rows:
        recorder.add(*row)
    recorder.close()
    return run / FOLDER / f"{about.home}.trace"


def made(run):
    """An actor of two sends a trajectory, a batch is drawn, learned from and published."""
    for i in (0, 1):
        record(
            run,
            heading(f"actor-0.{i}"),
            (0, Doing.RECEIVE, 1.0, 1.1, 0, 0, What.WEIGHTS),
            (0, Doing.ACT, 1.1, 1.4, 1.4001, 1.8),
            (0, Doing.SEND, 1.8, 1.9 + i / 10, 0, 0, What.TRAJECTORY),
            (0, Doing.IDLE, 2.0, 4.0, 0, 0, Wait.WEIGHTS),
            (0, Doing.RECEIVE, 4.0, 4.1, 0, 1, What.WEIGHTS),
            (0, Doing.ACT, 4.1, 4.4, 4.4001, 5.0),
        )
    record(
        run,
        heading("learner-0.0", ("learner-0.0", "buffer-0.0")),
        (0, Doing.SEND, 0.9, 1.0, 0, 0, What.WEIGHTS),
        (0, Doing.IDLE, 1.0, 2.5, 0, 0, Wait.TRAJECTORIES),
        (1, Doing.IDLE, 1.0, 1.85, 0, 0, Wait.TRAJECTORIES),
        (1, Doing.RECEIVE, 1.85, 1.95, 0, 0, What.TRAJECTORY, 0),  # done before its sender is
        (1, Doing.RECEIVE, 2.0, 2.1, 0, 0, What.TRAJECTORY, 1),
        (1, Doing.SEND, 2.2, 2.4, 0, 0, What.BATCH),
        (0, Doing.RECEIVE, 2.5, 2.51, 0, 0, What.BATCH),
        (0, Doing.UPDATE, 2.51, 3.8, 0, 0),
        (0, Doing.SEND, 3.8, 3.9, 0, 1, What.WEIGHTS),
        (0, Doing.IDLE, 3.9, 5.0, 0, 0, Wait.TRAJECTORIES),
    )
    return read(run)
