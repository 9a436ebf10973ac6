"""The roles' side of checkpoints: what they write and when, and how they go on from it."""

import errno
import itertools
import math
import os
import threading
import time

import numpy as np
import pytest
from commands import TASKS

from tianji.config import load
from tianji.core import checkpoint, disk
from tianji.core.checkpoint import read_written
from tianji.core.counts import Count, counts_state
from tianji.core.disk import Files
from tianji.core.tensorfile import chunks
from tianji.job import factory
from tianji.job.job import prepare
from tianji.job.wiring import channels_of
from tianji.roles import role_state
from tianji.roles.role_specs import roles_of
from tianji.roles.saving import (
    ANY_SIZE,
    LAST,
    LEFT_OUT,
    STORE,
    Saver,
    order,
    order_last,
    part_of,
    writing,
)
from tianji.transports.local import LocalTransport


class Stage:
    """All roles of a job in one process, and a saver for them."""

    def __init__(self, folder, task="walk_dqn", *overrides):
        self.config = load(TASKS / f"{task}.py", overrides)
        env = factory.make_env(self.config)
        env.close()
        self.job = prepare(self.config, env.spec)
        self.transport = LocalTransport(channels_of(self.job))
        self.roles = [
            factory.build(role, self.job, self.transport) for role in roles_of(self.config)
        ]
        self.learner, self.buffer, self.actor = self.roles[:3]
        self.orders = self.transport.outbox("orders")
        self.folder = folder
        self.saver = Saver(self.roles, self.transport.inbox("orders"), folder)

    def go(self, rounds):
        for _ in range(rounds):
            for role in self.roles:
                role.step()
        return self

    def saved(self, folder, eventually=None, number=1):
        if eventually is not None:
            eventually(lambda: self.actor.counts[Count.SAVED] == number)
        return sorted(p.name.removesuffix(".safetensors") for p in (self.folder / folder).iterdir())


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path).go(200)


ROLES = ["actor-0.0", "buffer-0.0", "learner-0.0"]
NOTES = [f"{name}.sha256" for name in [*ROLES, "buffer-0.0.store"]]
ROLES_AND_NOTE = sorted([*ROLES, *NOTES[:-1], f"buffer-0.0.store{LEFT_OUT}"])
ALL = sorted([*ROLES, "buffer-0.0.store", *NOTES])


def test_without_an_order_nothing_is_written(stage, tmp_path):
    stage.saver.look()
    order_last(stage.orders, stage.config)
    stage.saver.look()
    assert list(tmp_path.iterdir()) == []


def test_an_order_is_carried_out_once_while_training_goes_on(stage, eventually):
    before = stage.learner.version
    weights = stage.learner.algorithm.weights().copy()
    order(stage.orders, 1, ANY_SIZE)
    stage.saver.look()
    stage.go(50)
    assert stage.saved(writing(1), eventually) == ALL
    part = read_written(stage.folder / writing(1), "learner-0.0")
    assert part["version"] == before < stage.learner.version
    assert np.array_equal(part["weights"], weights)
    stage.saver.look()
    order(stage.orders, 2, ANY_SIZE)
    stage.saver.look()
    assert stage.saved(writing(2), eventually, 2) == ALL


@pytest.mark.parametrize(("largest", "kept"), [(ANY_SIZE, True), (0, False), (1_000, False)])
def test_samples_are_left_out_where_they_are_too_many(stage, eventually, largest, kept):
    order(stage.orders, 1, largest)
    stage.saver.look()
    assert ("buffer-0.0.store" in stage.saved(writing(1), eventually)) == kept


class Broken(Files):
    """Refuses one file."""

    def write(self, path, pieces):
        if path.name.startswith("actor"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return super().write(path, pieces)


def test_a_disk_that_refuses_is_reported_and_not_raised(stage, eventually, monkeypatch):
    monkeypatch.setattr(disk, "FILES", Broken())
    order(stage.orders, 1, ANY_SIZE)
    stage.saver.look()
    eventually(lambda: stage.actor.counts[Count.SAVED] == 1)
    assert {role.counts[Count.SAVE_ERROR] for role in stage.roles} == {errno.ENOSPC}
    monkeypatch.undo()
    order(stage.orders, 2, ANY_SIZE)
    stage.saver.look()
    eventually(lambda: stage.actor.counts[Count.SAVED] == 2)
    assert {role.counts[Count.SAVE_ERROR] for role in stage.roles} == {0}


def test_so_it_is_at_the_end(stage, monkeypatch, capsys):
    monkeypatch.setattr(disk, "FILES", Broken())
    stage.saver.finish()
    assert "No space left" in capsys.readouterr().err
    assert not (stage.folder / LAST / "actor-0.0.sha256").exists()


@pytest.mark.parametrize("replay", ["auto", "always", "never"])
def test_the_end_is_written_at_once(tmp_path, replay):
    stage = Stage(tmp_path, "walk_dqn", f"exp.save_replay={replay}").go(200)
    order_last(stage.orders, stage.config)
    stage.saver.finish()
    assert ("buffer-0.0.store" in stage.saved(LAST)) == (replay != "never")


def test_samples_that_would_come_too_late_are_left_out_and_that_is_said(stage, capsys):
    order(stage.orders, 0, ANY_SIZE, time.monotonic() - 1)
    stage.saver.finish()
    assert stage.saved(LAST) == ROLES_AND_NOTE
    assert "buffer-0.0.store was left out" in capsys.readouterr().err


class Full(Files):
    """A disk that has room for all but the samples."""

    def write(self, path, pieces):
        if STORE in path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return super().write(path, pieces)


def test_samples_that_find_no_room_at_the_end_are_left_out_with_the_reason(stage, monkeypatch):
    monkeypatch.setattr(disk, "FILES", Full())
    stage.saver.finish()
    assert stage.saved(LAST) == ROLES_AND_NOTE
    note = stage.folder / LAST / f"buffer-0.0{STORE}{LEFT_OUT}"
    assert note.read_text() == "No space left on device"


class Endless(Files):
    """Never has enough of the samples, in the background."""

    def __init__(self):
        self.begun = threading.Event()

    def write(self, path, pieces):
        if path.name == f"buffer-0.0{STORE}.safetensors" and path.parent.name == writing(1):
            self.begun.set()
            for _ in pieces:
                pass
        return super().write(path, pieces)


def endless_samples(state):
    return itertools.repeat(b"") if "rows" in state else chunks(state)


def test_the_end_does_not_wait_for_samples_that_are_being_written(stage, monkeypatch):
    files = Endless()
    monkeypatch.setattr(disk, "FILES", files)
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "chunks", endless_samples)
        order(stage.orders, 1, ANY_SIZE)
        stage.saver.look()
        assert files.begun.wait(10)
    stage.saver.finish()
    assert stage.saved(LAST) == ALL


# ------------------------------------------------------------------------- going on from a part


def carried(stage, folder):
    """A sealed checkpoint of all roles."""
    stage.saver.finish()
    about = {"version": stage.learner.version, "env_steps": 0, "replay": "kept"}
    return checkpoint.seal(stage.folder / LAST, folder / "sealed", {}, about)


def resumed(stage, saved):
    for role in stage.roles:
        if (part := part_of(saved, role.name)) is not None:
            role_state.restore(role, part)
        role_state.rejoin(role, saved.version)
    return stage


@pytest.mark.parametrize("task", ["walk_dqn", "walk_ppo"])
def test_roles_that_lost_what_was_in_flight_agree_again(tmp_path, task):
    for i, rounds in enumerate((130, 133, 140, 171)):
        folder = tmp_path / str(i)
        folder.mkdir()
        old = Stage(folder, task).go(rounds)
        saved = carried(old, folder)
        new = resumed(Stage(folder, task), saved)
        version = old.learner.version
        assert new.learner.version == new.buffer.handed == version > 0
        assert new.actor.version == -1  # it acts with nothing but what the learner has published
        assert new.buffer.balance.consumed == version * new.buffer.balance.batch
        new.go(400)
        assert new.learner.version > version + 2
        report = new.learner.report()
        stale = np.flatnonzero(report["staleness"])
        assert stale.max() <= (0 if task == "walk_ppo" else version + 200)
        consumed, received = new.buffer.balance.consumed, new.buffer.balance.received
        owed = (received - new.buffer.balance.warmup) * new.buffer.balance.ratio - consumed
        assert 0 <= owed <= new.buffer.balance.batch + 64 * new.buffer.balance.ratio


def test_an_actor_acts_with_nothing_but_what_the_learner_published(tmp_path):
    saved = carried(Stage(tmp_path).go(200), tmp_path)
    new = resumed(Stage(tmp_path), saved)
    assert new.actor.weights.take().version == saved.version
    assert new.actor.step() is False  # that was taken from it, so there is nothing to act with


def test_a_role_of_which_only_its_counts_are_known_begins_anew_with_them(tmp_path):
    old = Stage(tmp_path).go(200)
    saved = carried(old, tmp_path)
    new = Stage(tmp_path)
    role_state.restore(new.learner, part_of(saved, "learner-0.0"))
    for role, was in ((new.buffer, old.buffer), (new.actor, old.actor)):
        role_state.restore(role, {"counts": counts_state(was.counts)})
    for role in new.roles:
        role_state.rejoin(role, saved.version)
    assert new.actor.counts[Count.PRODUCED] == old.actor.counts[Count.PRODUCED] > 0
    assert new.buffer.received == old.buffer.received
    assert new.buffer.balance.received >= math.ceil(saved.version * 32 / 8)
    new.go(300)
    assert new.learner.version > saved.version
    assert new.actor.counts[Count.PRODUCED] > old.actor.counts[Count.PRODUCED]
