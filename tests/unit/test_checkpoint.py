"""Checkpoints on disk: whole or not there, intact or refused, and never more of them than kept."""

import errno
import hashlib
import json
import os

import numpy as np
import pytest

from tianji.core import checkpoint, disk
from tianji.core.checkpoint import FORMAT, folder_for, folders_of, load, newest, prune, seal
from tianji.core.disk import Files
from tianji.core.errors import TianJiError
from tianji.core.tensorfile import Corrupt
from tianji.roles.saving import writing

RUN = {"watch": {"episodes": 3}, "run": {"resumes": 0}}
CONFIG = {"config": {"name": "tiny"}, "seed": 1}


def about(n, score=None, replay="kept"):
    return {"tianji": "0.1.0", "version": 10 * n, "env_steps": 100 * n, "score": score} | {
        "number": n,
        "replay": replay,
    }


def make(run, n, files=disk.FILES, score=None, **more):
    """Writes checkpoint `n` of a run as roles and launcher do together."""
    folder = run / "checkpoints" / writing(n)
    files.make_folder(folder)
    parts = {
        "learner-0.0": {"weights": np.full(5, n, np.float32), "version": 10 * n},
        "actor-0.0": {"obs": np.arange(3.0), "counts": {"produced": 100.0 * n}},
        "buffer-0.0.store": {"rows": np.arange(6, dtype=np.int16).reshape(2, 3)},
    }
    for name, state in parts.items():
        checkpoint.write_part(folder, name, state, files)
    documents = {"run.json": RUN, "config.json": CONFIG}
    target = folder_for(run, n, 100 * n)
    return seal(folder, target, documents, about(n, score) | more, files)


@pytest.fixture
def run(tmp_path):
    """A run folder that has one checkpoint."""
    make(tmp_path, 1)
    return tmp_path


def visible(run):
    return [folder.name for folder in folders_of(run)]


def hidden(run):
    return [path.name for path in (run / "checkpoints").glob(".*")]


def test_a_checkpoint_comes_back_as_it_was_sealed(run):
    found = load(folders_of(run)[0])
    assert (found.version, found.env_steps, found.score) == (10, 100, None)
    assert found.part("learner-0.0")["weights"].tolist() == [1, 1, 1, 1, 1]
    assert found.part("actor-0.0")["counts"] == {"produced": 100.0}
    assert found.part("buffer-0.0.store")["rows"].shape == (2, 3)
    assert found.part("actor-0.9") is None
    assert (found.json("run.json"), found.json("config.json")) == (RUN, CONFIG)
    assert hidden(run) == []


def test_the_manifest_names_every_file_with_its_size_and_checksum(run):
    folder = folders_of(run)[0]
    assert folder.name == "0001-step-100"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["format"] == FORMAT
    assert about(1).items() <= manifest.items()
    files = {path.name for path in folder.iterdir()} - {"manifest.json", "manifest.sha256"}
    assert manifest["files"].keys() == files
    for name, known in manifest["files"].items():
        assert known["bytes"] == (folder / name).stat().st_size
        assert len(known["sha256"]) == 64
    assert os.system(f"cd {folder} && sha256sum --check --quiet manifest.sha256") == 0


def test_every_changed_byte_of_every_file_is_caught(run):
    make(run, 2)
    older, newer = folders_of(run)
    n_bytes = 0
    for path in sorted(newer.iterdir()):
        whole = path.read_bytes()
        for place in range(len(whole)):
            changed = bytearray(whole)
            changed[place] ^= 1 << place % 8
            path.write_bytes(changed)
            with pytest.raises(Corrupt, match="0002-step-200"):
                load(newer)
            n_bytes += 1
            if place % 40 == 0:
                found, notices = newest(run)
                assert (found.folder, len(notices)) == (older, 1)
        path.write_bytes(whole)
    assert n_bytes > 1_500
    assert newest(run)[0].folder == newer


@pytest.mark.parametrize("length", [0, 1, 8, -1])
def test_every_truncated_file_is_caught(run, length):
    for path in sorted(folders_of(run)[0].iterdir()):
        whole = path.read_bytes()
        path.write_bytes(whole[:length])
        with pytest.raises(Corrupt, match="0001-step-100"):
            load(path.parent)
        path.write_bytes(whole)


def test_every_missing_file_is_caught(run):
    for path in sorted(folders_of(run)[0].iterdir()):
        whole = path.read_bytes()
        path.unlink()
        with pytest.raises(Corrupt, match="0001-step-100"):
            load(path.parent)
        path.write_bytes(whole)
    assert load(folders_of(run)[0])


def test_a_file_too_long_is_caught(run):
    for path in sorted(folders_of(run)[0].iterdir()):
        whole = path.read_bytes()
        path.write_bytes(whole + b"\n")
        with pytest.raises(Corrupt):
            load(path.parent)
        path.write_bytes(whole)


def test_a_newer_format_is_refused_with_the_reason_also_where_an_older_one_lies(run):
    make(run, 2, format=FORMAT + 1, tianji="9.0")
    with pytest.raises(TianJiError, match=r"has format 2, made by tianji 9\.0; .* newer version"):
        newest(run)
    with pytest.raises(TianJiError, match="reads up to 1"):
        load(folders_of(run)[-1])


def test_the_newest_is_the_one_with_the_highest_number_and_not_name(run):
    for n in (2, 10_000):
        make(run, n)
    found, notices = newest(run)
    assert (found.version, notices) == (100_000, [])
    assert visible(run) == ["0001-step-100", "0002-step-200", "10000-step-1000000"]


def test_the_newest_that_is_intact_is_used_and_the_others_are_named(run):
    for n in (2, 3):
        make(run, n)
    for folder in folders_of(run)[1:]:
        (folder / "actor-0.0.safetensors").write_bytes(b"")
    found, notices = newest(run)
    assert found.version == 10
    assert len(notices) == 2
    assert "0003-step-300/actor-0.0.safetensors has 0 bytes instead of" in notices[0]
    assert "0002-step-200" in notices[1]


def test_where_none_is_intact_that_is_refused_and_where_there_is_none_it_is_not(run, tmp_path):
    assert newest(tmp_path / "nothing") == (None, [])
    (folders_of(run)[0] / "manifest.json").unlink()
    with pytest.raises(TianJiError, match="none of its checkpoints is intact") as refusal:
        newest(run)
    assert "0001-step-100 is no whole checkpoint" in str(refusal.value)
    assert "--run-dir" in str(refusal.value)


def test_the_last_ones_and_the_best_are_kept(tmp_path):
    for n, score in enumerate([1.0, 9.0, 3.0, None, 5.0, 4.0], start=1):
        make(tmp_path, n, score=score)
        prune(tmp_path, keep=2)
    assert [checkpoint.number(f) for f in folders_of(tmp_path)] == [2, 5, 6]
    assert checkpoint.best(tmp_path).name == "0002-step-200"
    make(tmp_path, 7, score=9.5)
    prune(tmp_path, keep=1)
    assert visible(tmp_path) == ["0007-step-700"]
    assert hidden(tmp_path) == []


def test_what_cannot_be_read_is_not_removed(tmp_path):
    for n in range(1, 5):
        make(tmp_path, n)
    (folders_of(tmp_path)[0] / "manifest.sha256").write_text("mine")
    prune(tmp_path, keep=1)
    assert visible(tmp_path) == ["0001-step-100", "0004-step-400"]


def test_without_scores_there_is_no_best(run):
    assert checkpoint.best(run) is None
    prune(run, keep=1)
    assert visible(run) == ["0001-step-100"]


def test_what_was_left_half_written_is_swept_away_and_nothing_else(run):
    (run / "checkpoints" / ".writing-2").mkdir()
    (run / "checkpoints" / ".writing-2" / "actor-0.0.safetensors").write_bytes(b"half")
    (run / "checkpoints" / ".old-0000-step-0").mkdir()
    (run / "checkpoints" / "final.safetensors").write_bytes(b"weights")
    checkpoint.sweep(run)
    left = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert left == ["0001-step-100", "final.safetensors"]


def test_a_part_that_comes_too_late_leaves_nothing(tmp_path):
    pieces = iter([False, True])
    with pytest.raises(checkpoint.OutOfTime):
        checkpoint.write_part(
            tmp_path, "store", {"rows": np.zeros(9)}, disk.FILES, lambda: next(pieces)
        )
    assert list(tmp_path.iterdir()) == []


def test_large_files_reach_the_disk_bit_by_bit(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(disk, "SYNC_BYTES", 100)
    monkeypatch.setattr(Files, "sync", lambda self, fd: synced.append(os.fstat(fd).st_size))
    Files().write(tmp_path / "large", iter([bytes(60)] * 5))
    assert len(synced) == 3
    assert synced[-1] == 300


class Breaking(Files):
    """A disk on which the n-th change fails; a write fails in its middle."""

    def __init__(self, n, number=errno.ENOSPC):
        self.left = n
        self.number = number

    def _count(self, path):
        self.left -= 1
        if self.left == 0:
            raise OSError(self.number, os.strerror(self.number), str(path))

    def make_folder(self, path):
        self._count(path)
        super().make_folder(path)

    def write(self, path, pieces):
        self.left -= 1
        if self.left == 0:
            path.write_bytes(next(pieces)[:-1])
            raise OSError(self.number, os.strerror(self.number), str(path))
        return super().write(path, pieces)

    def note(self, path, text):
        self._count(path)
        super().note(path, text)

    def sync(self, descriptor):
        self._count("a descriptor")
        super().sync(descriptor)

    def rename(self, source, target):
        self._count(source)
        super().rename(source, target)


def n_changes(run):
    counting = Breaking(10**9)
    make(run, 2, counting)
    prune(run, 1, counting)
    return 10**9 - counting.left


def test_a_disk_that_fails_at_any_change_costs_no_older_checkpoint(tmp_path):
    n = n_changes(tmp_path / "counted")
    assert n > 20
    for i in range(1, n + 1):
        run = tmp_path / str(i)
        make(run, 1)
        with pytest.raises(OSError, match="No space left"):
            breaking = Breaking(i)
            make(run, 2, breaking)
            prune(run, 1, breaking)
            pytest.fail(f"change {i} did not fail")
        found, notices = newest(run)  # every one that can be seen is whole
        assert notices == []
        assert found.version == (20 if "0002-step-200" in visible(run) else 10)
        checkpoint.sweep(run)
        make(run, 3)
        assert newest(run)[0].version == 30


def test_a_part_that_the_disk_refuses_leaves_no_half_of_it(tmp_path):
    for i in (1, 2, 3):
        with pytest.raises(OSError, match="No space left"):
            checkpoint.write_part(tmp_path, "part", {"a": np.zeros(9)}, Breaking(i))
        assert not (tmp_path / "part.sha256").exists()


def sealed_with(tmp_path, change):
    """A checkpoint whose manifest was changed by somebody who also mended its checksum."""
    folder = tmp_path / "checkpoints" / "0001-step-5"
    folder.mkdir(parents=True)
    files = {name: {"bytes": 2, "sha256": hashlib.sha256(b"{}").hexdigest()} for name in NEEDED}
    for name in NEEDED:
        (folder / name).write_text("{}")
    manifest = {"format": 1, "version": 1, "env_steps": 5, "score": 1.0, "replay": "kept"}
    text = json.dumps(change(manifest | {"files": files})).encode()
    (folder / "manifest.json").write_bytes(text)
    (folder / "manifest.sha256").write_text(f"{hashlib.sha256(text).hexdigest()}  manifest.json\n")
    return folder


NEEDED = ("learner-0.0.safetensors", "run.json", "config.json")
CHANGES = {
    "a list": lambda m: [m],
    "no format": lambda m: m | {"format": "one"},
    "no files": lambda m: m | {"files": None},
    "no version": lambda m: {k: v for k, v in m.items() if k != "version"},
    "a score that is a list": lambda m: m | {"score": [1]},
    "no learner": lambda m: m | {"files": {"run.json": {"bytes": 0}}},
    "a file elsewhere": lambda m: m | {"files": m["files"] | {"../x": {"bytes": 0}}},
    "an absolute file": lambda m: m | {"files": m["files"] | {"/dev/zero": {"bytes": 0}}},
    "a name with a zero": lambda m: m | {"files": m["files"] | {"a\0": {"bytes": 0}}},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_manifest_that_is_none_of_ours_is_refused(tmp_path, change):
    sealed_with(tmp_path, change)
    with pytest.raises(TianJiError, match=r"none of ours"):
        checkpoint.newest(tmp_path)
    checkpoint.prune(tmp_path, 1)


def test_a_link_to_elsewhere_is_no_part_of_a_checkpoint(tmp_path):
    folder = sealed_with(tmp_path, lambda manifest: manifest)
    checkpoint.load(folder)
    (folder / "run.json").unlink()
    (folder / "run.json").symlink_to("/dev/null")
    with pytest.raises(TianJiError, match="is no plain file"):
        checkpoint.load(folder)


def test_only_what_is_ours_is_swept_away(tmp_path):
    saved = tmp_path / "checkpoints"
    for name in (".writing-3", ".last", ".old-0001-step-5", ".ssh", ".writing-x"):
        (saved / name).mkdir(parents=True)
    for name in (".best.safetensors.42.part", "best.safetensors", ".notes.part"):
        (saved / name).touch()
    checkpoint.sweep(tmp_path)
    left = {".ssh", ".writing-x", "best.safetensors", ".notes.part"}
    assert {path.name for path in saved.iterdir()} == left


def test_a_score_that_is_no_number_is_none(tmp_path):
    folder = sealed_with(tmp_path, lambda manifest: manifest | {"score": float("nan")})
    assert checkpoint.open_checkpoint(folder).score is None


def test_of_equal_checkpoints_the_newest_is_the_best_for_all(tmp_path):
    for number in (1, 2):
        folder = sealed_with(tmp_path / str(number), lambda manifest: manifest)
        (tmp_path / "checkpoints").mkdir(exist_ok=True)
        folder.rename(tmp_path / "checkpoints" / f"000{number}-step-5")
    assert checkpoint.best(tmp_path).name == "0002-step-5"
    checkpoint.prune(tmp_path, 1)
    assert [path.name for path in checkpoint.folders_of(tmp_path)] == ["0002-step-5"]
