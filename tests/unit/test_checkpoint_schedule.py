"""The launcher's side of checkpoints: when one is ordered, what is sealed, what may go wrong."""

import errno
import json
import os

import numpy as np
import pytest
from commands import TASKS

import tianji
from tianji.config import load
from tianji.core import checkpoint, disk
from tianji.core.counts import Count, counts_state
from tianji.observe.watch import Progress
from tianji.roles.role_specs import roles_of
from tianji.roles.saving import ANY_SIZE, LAST, LEFT_OUT, writing
from tianji.runs import checkpoint_schedule
from tianji.runs.checkpoint_schedule import LARGEST_COPY, CheckpointSchedule, left_out

FACTS = {"watch": {"episodes": 3}, "run": {"resumes": 0}}


class Stage:
    """A keeper whose roles are played by hand."""

    def __init__(self, folder, *overrides, version=0):
        self.config = load(TASKS / "walk_dqn.py", overrides)
        self.folder = folder
        (folder / "config.json").write_text(json.dumps({"config": {"name": "walk"}}))
        self.roles = [role.name for role in roles_of(self.config)]
        self.progress = Progress({name: np.zeros(len(Count)) for name in self.roles})
        self.progress.started_at = 1.0
        self.orders, self.saved, self.warnings = [], [], []
        self.keeper = CheckpointSchedule(
            self.config,
            folder,
            self,
            lambda: FACTS,
            self.saved.append,
            self.warnings.append,
            version,
        )

    def order(self, number, largest_store):
        self.orders.append((number, largest_store))

    def tick(self, updates):
        self.progress.counts["learner-0.0"][Count.VERSION] = updates
        self.keeper.tick(self.progress)

    def write(self, folder, roles=None, store=True, version=12):
        """What the roles would write."""
        folder = self.folder / "checkpoints" / folder
        folder.mkdir(parents=True)
        for name in roles or self.roles:
            self.progress.counts[name][Count.PRODUCED] = 50
            counts = counts_state(self.progress.counts[name])
            part = {"counts": counts, "version": version, "weights": np.zeros(2, np.float32)}
            checkpoint.write_part(folder, name, part)
        if store:
            checkpoint.write_part(folder, "buffer-0.0.store", {"rows": np.zeros(2)})

    def say_saved(self, number, error=0):
        for counts in self.progress.counts.values():
            counts[Count.SAVED], counts[Count.SAVE_ERROR] = number, error


@pytest.fixture
def stage(tmp_path):
    def make(*overrides, version=0):
        return Stage(tmp_path, *overrides, version=version)

    return make


def manifest(folder):
    return checkpoint.load(checkpoint.folders_of(folder)[-1]).manifest


def test_one_is_ordered_every_so_many_updates_and_never_a_second_before_the_first_is_done(stage):
    s = stage("exp.save_freq=10")
    for updates in (0, 5, 9):
        s.tick(updates)
    assert s.orders == []
    for updates in (10, 20, 30):
        s.tick(updates)
    assert s.orders == [(1, LARGEST_COPY)]
    s.write(writing(1))
    s.say_saved(1)
    s.tick(30)
    assert len(s.saved) == 1
    s.tick(31)
    assert [number for number, _ in s.orders] == [1, 2]


def test_or_every_so_many_seconds(stage, monkeypatch):
    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(checkpoint_schedule, "time", clock)
    s = stage("exp.save_seconds=60")
    for clock.now in (101, 159.9):
        s.tick(7)
    assert s.orders == []
    clock.now = 160
    s.tick(0)
    assert s.orders == []  # there is nothing to keep before the first update
    s.tick(7)
    assert len(s.orders) == 1


def test_or_never_but_at_the_end(stage):
    s = stage("exp.save_seconds=None")
    s.tick(10**6)
    assert s.orders == []


@pytest.mark.parametrize(
    ("how", "largest"), [("auto", LARGEST_COPY), ("always", ANY_SIZE), ("never", 0)]
)
def test_samples_are_asked_for_as_the_configuration_says(stage, how, largest):
    s = stage("exp.save_freq=1", f"exp.save_replay={how}")
    s.tick(1)
    assert s.orders == [(1, largest)]


def test_a_group_that_has_ended_is_kept_as_it_was_at_its_end(stage, tmp_path):
    s = stage("exp.save_freq=1", "global_cfg.group_num=2")
    first, second = ([n for n in s.roles if f"-{group}." in n] for group in (0, 1))
    s.tick(1)
    s.write(writing(1), first, version=12)
    for name in first:
        s.progress.counts[name][Count.SAVED] = 1
    s.tick(2)
    assert s.saved == []  # nothing is known of the other group
    s.write(LAST, second, version=30)
    s.tick(2)
    saved = checkpoint.load(checkpoint.folders_of(tmp_path)[-1])
    assert (saved.version, saved.updates, saved.env_steps) == (12, 42, 100)
    assert saved.part("learner-1.0")["version"] == 30
    s.tick(3)
    s.write(writing(2), first, version=14)
    for name in first:
        s.progress.counts[name][Count.SAVED] = 2
    s.tick(3)
    assert len(s.saved) == 2 and s.warnings == []


def test_without_the_first_learner_of_every_group_the_end_is_not_kept(stage):
    s = stage("global_cfg.group_num=2", "learner_cfg.num=2")
    s.write(LAST, [name for name in s.roles if name != "learner-1.0"])
    assert s.keeper.close(s.progress) is None
    s.write(LAST, [name for name in s.roles if name != "learner-1.1"])
    assert s.keeper.close(s.progress) is not None
    assert "learner-1.1 saved nothing at the end" in s.warnings[0]


def test_the_manifest_says_what_the_checkpoint_is(stage, tmp_path):
    s = stage("exp.save_freq=1")
    s.progress.returns.extend([1.0, 2.0] * 10)
    s.tick(1)
    s.write(writing(1))
    s.tick(2)
    assert checkpoint.folders_of(tmp_path) == []  # the roles have not said that they are done
    s.say_saved(1)
    s.tick(2)
    said = manifest(tmp_path)
    expected = {"tianji": tianji.__version__, "config": "walk_dqn", "number": 1, "version": 12}
    assert expected.items() <= said.items()
    assert (said["env_steps"], said["score"], said["replay"]) == (50, 1.5, "kept")
    found = checkpoint.newest(tmp_path)[0]
    assert found.folder.name == "0001-step-50"
    assert found.json("run.json") == FACTS
    assert found.json("config.json") == {"config": {"name": "walk"}}


@pytest.mark.parametrize(
    ("how", "why"), [("auto", "could not be written"), ("never", "save_replay is 'never'")]
)
def test_the_manifest_says_why_there_are_no_samples(stage, tmp_path, how, why):
    s = stage(f"exp.save_replay={how}")
    s.write(LAST, store=False)
    assert s.keeper.close(s.progress) is not None
    assert why in manifest(tmp_path)["replay"]


def test_the_manifest_says_that_the_disk_was_full_at_the_end(stage, tmp_path):
    s = stage()
    s.write(LAST, store=False)
    (tmp_path / "checkpoints" / LAST / f"buffer-0.0.store{LEFT_OUT}").write_text("No space left")
    sealed = s.keeper.close(s.progress)
    assert manifest(tmp_path)["replay"] == "left out: No space left"
    assert not list(sealed.folder.glob(f"*{LEFT_OUT}"))


def test_a_disk_that_refuses_is_a_warning_and_the_older_one_stays(stage, tmp_path):
    s = stage("exp.save_freq=1")
    s.tick(1)
    s.write(writing(1))
    s.say_saved(1)
    s.tick(1)
    s.tick(2)
    s.write(writing(2), roles=["learner-0.0"])
    s.say_saved(2, errno.ENOSPC)
    s.tick(2)
    (said,) = s.warnings
    assert "could not be written: No space left on device; training goes on" in said
    assert "the newest is still 0001-step-50" in said
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["0001-step-50"]
    s.tick(3)
    assert s.orders[-1][0] == 3  # it is tried again


class Full(disk.Files):
    """A disk without room."""

    def write(self, path, pieces):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


@pytest.mark.parametrize("roles", [None, ["learner-0.0", "buffer-0.0"]])
def test_so_it_is_where_the_launcher_itself_finds_no_room(stage, tmp_path, monkeypatch, roles):
    s = stage()
    s.write(LAST, roles)
    monkeypatch.setattr(disk, "FILES", Full())
    assert s.keeper.close(s.progress) is None
    assert "No space left on device" in s.warnings[-1] and "there is none yet" in s.warnings[-1]
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_a_role_that_died_is_known_by_its_counts(stage, tmp_path):
    s = stage("actor_cfg.num=2")
    s.write(LAST, roles=["learner-0.0", "buffer-0.0", "actor-0.0"])
    s.progress.counts["actor-0.1"][Count.PRODUCED] = 70
    assert s.keeper.close(s.progress) is not None
    assert "actor-0.1 saved nothing at the end" in s.warnings[0]
    found = checkpoint.newest(tmp_path)[0]
    assert found.env_steps == 120
    assert found.part("actor-0.1")["counts"]["produced"] == 70


def test_a_role_that_died_goes_on_from_the_checkpoint_before(stage, tmp_path):
    s = stage("exp.save_freq=1")
    s.tick(1)
    s.write(writing(1), roles=["learner-0.0", "buffer-0.0"])
    older = {"counts": counts_state(np.zeros(len(Count))), "policy": {"steps": 9}, "env": {"x": 1}}
    checkpoint.write_part(tmp_path / "checkpoints" / writing(1), "actor-0.0", older)
    s.say_saved(1)
    s.tick(1)
    s.write(LAST, roles=["learner-0.0", "buffer-0.0"], version=20)
    s.progress.counts["actor-0.0"][Count.PRODUCED] = 70
    found = s.keeper.close(s.progress).part("actor-0.0")
    assert (found["policy"], found["env"], found["counts"]["produced"]) == ({"steps": 9}, None, 70)


def test_a_run_that_never_began_leaves_the_older_checkpoint_the_newest(stage, tmp_path):
    s = stage()
    s.progress.started_at = None
    s.write(LAST, roles=["learner-0.0", "buffer-0.0"])
    assert s.keeper.close(s.progress) is None
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_nothing_is_written_where_nothing_was_trained(stage, tmp_path):
    s = stage()
    s.write(LAST)
    first = s.keeper.close(s.progress)
    again = stage()
    again.write(LAST)
    assert again.keeper.close(again.progress).folder == first.folder
    assert checkpoint.folders_of(tmp_path) == [first.folder]


def test_half_a_store_is_not_said_to_be_kept(stage, tmp_path):
    s = stage()
    s.write(LAST, store=False)
    half = tmp_path / "checkpoints" / LAST / "buffer-0.0.store.safetensors"
    half.write_bytes(b"half")
    found = s.keeper.close(s.progress)
    assert found.manifest["replay"].startswith("left out")
    assert not (found.folder / half.name).exists()


def test_a_role_that_does_not_answer_is_named_once(stage, monkeypatch):
    s = stage("exp.save_freq=1")
    s.tick(1)
    monkeypatch.setattr(checkpoint_schedule, "PATIENCE_SECONDS", 0.0)
    for _ in range(3):
        s.tick(2)
    assert len(s.warnings) == 1 and "actor-0.0 does not answer" in s.warnings[0]


def test_without_the_learner_there_is_no_checkpoint(stage, tmp_path):
    s = stage()
    assert s.keeper.close(s.progress) is None
    s.write(LAST, roles=["actor-0.0"])
    assert s.keeper.close(s.progress) is None
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_what_was_under_way_at_the_end_is_not_waited_for(stage, tmp_path):
    s = stage("exp.save_freq=1")
    s.tick(1)
    s.write(writing(1), roles=["actor-0.0"])
    s.write(LAST)
    s.keeper.close(s.progress)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["0002-step-50"]


def test_numbers_go_on_where_an_earlier_process_stopped(stage, tmp_path):
    s = stage()
    s.write(LAST)
    s.keeper.close(s.progress)
    again = stage()
    again.write(LAST, version=13)
    again.keeper.close(again.progress)
    assert [f.name for f in checkpoint.folders_of(tmp_path)] == ["0001-step-50", "0002-step-50"]
    assert again.warnings == []


def test_a_resumed_run_waits_as_long_for_its_next_one_as_any(stage):
    s = stage("exp.save_freq=10", version=1_000)
    for updates in (1_000, 1_009):
        s.tick(updates)
    assert s.orders == []
    s.tick(1_010)
    assert len(s.orders) == 1


@pytest.mark.parametrize(
    ("how", "n_bytes", "why"),
    [
        ("auto", LARGEST_COPY, None),
        ("auto", LARGEST_COPY + 1, "256 MB"),
        ("always", 1 << 40, None),
        ("never", 1, "'never'"),
    ],
)
def test_it_is_known_before_a_run_which_checkpoints_leave_samples_out(how, n_bytes, why):
    said = left_out(load(TASKS / "walk_dqn.py", [f"exp.save_replay={how}"]), n_bytes)
    assert said is None if why is None else why in said


def test_a_role_that_is_replaced_meanwhile_holds_no_checkpoint_up(stage, tmp_path):
    stage = stage("exp.save_freq=10")
    stage.tick(10)
    others = [name for name in stage.roles if name != "actor-0.0"]
    stage.write(writing(1), others)
    stage.say_saved(1)
    stage.progress.counts["actor-0.0"][Count.SAVED] = 0  # of its next life
    stage.progress.counts["actor-0.0"][Count.PRODUCED] = 77
    stage.tick(11)
    assert stage.saved == []
    stage.progress.lives["actor-0.0"] += 1
    stage.tick(12)
    assert len(stage.saved) == 1
    assert manifest(tmp_path)["env_steps"] == 77
    assert stage.warnings == []


@pytest.mark.parametrize("lost", ["learner-0.0", "buffer-0.0"])
def test_one_that_a_learner_or_a_buffer_was_lost_from_is_given_up(stage, tmp_path, lost):
    stage = stage("exp.save_freq=10")
    stage.tick(10)
    stage.write(writing(1), [name for name in stage.roles if name != lost])
    stage.say_saved(1)
    stage.progress.counts[lost][Count.SAVED] = 0
    stage.progress.lives[lost] += 1
    stage.tick(11)
    assert (stage.saved, stage.warnings) == ([], [])
    assert list((tmp_path / "checkpoints").iterdir()) == []
    stage.tick(20)
    assert [number for number, _ in stage.orders] == [1, 2]


def test_what_a_role_had_written_before_it_was_lost_is_kept(stage, tmp_path):
    stage = stage("exp.save_freq=10")
    stage.tick(10)
    stage.write(writing(1))
    stage.say_saved(1)
    stage.progress.counts["actor-0.0"][Count.SAVED] = 0
    stage.progress.counts["actor-0.0"][Count.PRODUCED] = 77
    stage.progress.lives["actor-0.0"] += 1
    stage.tick(12)
    assert manifest(tmp_path)["env_steps"] == 50


def test_a_role_that_was_replaced_before_takes_part_like_any_other(stage):
    stage = stage("exp.save_freq=10")
    stage.progress.lives["actor-0.0"] += 1
    stage.tick(10)
    stage.write(writing(1))
    stage.tick(11)
    assert stage.saved == []
    stage.say_saved(1)
    stage.tick(12)
    assert len(stage.saved) == 1
