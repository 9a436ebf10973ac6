"""Files from outside: whatever they hold, they cost bounded time and memory, and are named."""

import hashlib
import json
import os
import resource
import shutil
import sys
from contextlib import contextmanager
from dataclasses import asdict

import numpy as np
import pytest
from commands import TASKS, start
from recordings import heading, record

import tianji
from tianji.config import load as load_config
from tianji.core import checkpoint, json_file, tensorfile
from tianji.core.errors import TianJiError
from tianji.machine import hostfile
from tianji.observe.report.run_reader import RunReader
from tianji.observe.sinks import read_rows
from tianji.observe.trace import FOLDER
from tianji.observe.trace.format import MAGIC, PREFIX, Doing, heading_from
from tianji.observe.trace.timeline import save
from tianji.observe.trace.trace_reader import read as read_trace
from tianji.observe.trace.trace_reader import read_file
from tianji.runs import resume, trained, weights_file
from tianji.runs.folder import rewind
from tianji.strategy.plan import plan_file

# ----------------------------------------------------------------- what is no regular file


def _report(path):
    reader = RunReader(path.parent)
    reader.refresh()
    return reader.document()


def _found(path):
    return checkpoint.newest(path.parents[2])


READERS = {
    "plan.json": plan_file.read,
    "final.safetensors": weights_file.read,
    "hosts": hostfile.read,
    "config.py": load_config,
    "checkpoints/0001-step-1/manifest.json": _found,
    "learner-0.0.safetensors": tensorfile.read,
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", READERS)
def test_a_pipe_or_a_device_is_refused_at_once(tmp_path, name, kind):
    path = put(tmp_path / name, kind)
    with pytest.raises(TianJiError, match="no regular file"):
        READERS[name](path)


def put(path, kind):
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/null" if path.suffix == ".safetensors" else "/dev/zero")
    return path


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", ["config.json", "summary.json", "progress.json", "metrics.jsonl"])
def test_a_report_leaves_a_pipe_or_a_device_out(tmp_path, name, kind):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).unlink(missing_ok=True)
    assert _report(put(tmp_path / name, kind))["status"] == "unfinished"


# ---------------------------------------------------------------------- the rows of a run

ROWS = ['{"env_steps": 1' + "0" * 400 + "}", "[" * 100_000, '{"env_steps": "a"}', "\xff", "7"]


def test_a_row_that_is_none_costs_no_other(tmp_path):
    good = [json.dumps({"env_steps": steps}) for steps in (10, 20, 30)]
    (tmp_path / "metrics.jsonl").write_text("\n".join([good[0], *ROWS, *good[1:], '{"env_st']))
    assert [row["env_steps"] for row in read_rows(tmp_path)] == [10, 20, 30]
    rewind(tmp_path, 20)
    assert (tmp_path / "metrics.jsonl").read_text().splitlines() == good[:2]


def test_a_line_without_end_is_not_kept_in_memory(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b"x" * (8 << 20) + b'\n{"env_steps": 5}\n')
    reader = RunReader(tmp_path)
    reader.refresh()
    assert len(reader._rows) == 1
    assert max(map(len, json_file.read_lines(tmp_path / "metrics.jsonl"))) == 1 << 20


def test_names_without_end_make_no_columns_without_end(tmp_path):
    row = {"env_steps": 1} | {f"roles/{i}/busy": 0.5 for i in range(5_000)}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    reader = RunReader(tmp_path)
    reader.refresh()
    assert len(reader._rows._columns) <= 100


# ------------------------------------------------------------------------------ a trace


def changed(path, **about):
    """The recording with another heading of the same length."""
    data = path.read_bytes()
    old = json.dumps(asdict(heading())).encode()
    new = json.dumps(asdict(heading()) | about).encode()
    assert old in data
    path.write_bytes(data.replace(old, new)[: len(data)])
    return path


def test_a_capacity_that_nobody_has_costs_no_memory(tmp_path):
    text, first = heading(capacity=10**9).to_bytes()
    data = PREFIX.pack(MAGIC, 10**9, first, len(text)) + text
    path = tmp_path / "actor-0.0.trace"
    path.write_bytes(data.ljust(8_896, b"\0"))
    limit = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, limit[1]))
    try:
        recording = read_file(path)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limit)
    assert recording.rows.size == 0 and "rows are lost" in recording.note


@pytest.mark.parametrize(
    "about",
    [
        {"capacity": 2**70},
        {"pid": 2**70},
        {"seconds": float("nan")},
        {"seconds": 10**400},
        {"offset": float("inf")},
        {"roles": ["x"] * 5_000},
    ],
    ids=str,
)
def test_a_heading_that_nobody_can_have_written_is_damage(about):
    text = json.dumps(asdict(heading()) | about).encode()
    with pytest.raises(ValueError, match="its heading is damaged"):
        heading_from(text)


@pytest.mark.parametrize("place", ["began", "ended", "number", "version"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_a_time_that_is_none_is_no_row(tmp_path, place, value):
    row = {"began": 3.0, "ended": 4.0, "number": 5.0, "version": 6.0} | {place: value}
    path = record(
        tmp_path, heading(), (0, Doing.UPDATE, 1.0, 2.0, 0, 0), (0, Doing.ACT, *row.values())
    )
    assert read_file(path).rows.size == 1
    (tmp_path / "config.json").write_text("{}")
    assert save(read_trace(tmp_path), tmp_path / "timeline.json")


def test_the_trace_of_a_strange_file_is_left_out_and_named(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    record(tmp_path, heading(), (0, Doing.UPDATE, 1.0, 2.0, 0, 0))
    os.mkfifo(tmp_path / FOLDER / "other.trace")
    (note,) = read_trace(tmp_path).notes
    assert "other.trace is left out" in note and "no regular file" in note


# ---------------------------------------------------------------- plan, hostfile, config


@pytest.mark.parametrize("text", ["[" * 100_000, '{"tianji_plan": ' * 100_000, "9" * 9_999])
def test_a_plan_that_is_nested_or_long_without_end_is_no_plan(tmp_path, text):
    (tmp_path / "plan.json").write_text(text)
    assert not plan_file.is_plan(tmp_path / "plan.json")
    with pytest.raises(TianJiError, match="this file is no plan"):
        plan_file.read(tmp_path / "plan.json")


def test_places_without_end_are_no_places(tmp_path):
    (tmp_path / "hosts").write_text(f"node1 slots={'1' * 5_000}\n")
    with pytest.raises(TianJiError, match="hosts:1: found") as error:
        hostfile.read(tmp_path / "hosts")
    assert len(str(error.value)) < 300


# --------------------------------------------------------------------- a run and its checkpoints


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run that ended after several checkpoints."""
    overrides = ["exp.train_steps=6000", "exp.save_freq=2", "exp.save_keep=3"]
    folder = tmp_path_factory.mktemp("outside") / "run"
    return tianji.train(TASKS / "walk_ppo.py", *overrides, engine="local", run_dir=folder).folder


@pytest.fixture
def run(whole, tmp_path):
    """A copy of it that was killed before its end."""
    folder = shutil.copytree(whole, tmp_path / "run")
    (folder / "summary.json").unlink()
    (folder / "checkpoints" / "final.safetensors").unlink()
    return folder


def resealed(folder, name=None, data=b"", **about):
    """Puts something else into a sealed checkpoint, and mends its checksums."""
    manifest = json.loads((folder / "manifest.json").read_text()) | about
    if name is not None:
        (folder / name).write_bytes(data)
        manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    text = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(text)
    (folder / "manifest.sha256").write_text(f"{hashlib.sha256(text).hexdigest()}  manifest.json\n")


def _unsealed(folder):
    (folder / "run.json").write_text('{"watch": [1]}')


def _with(part, name, value):
    """One value of `run.json` is another, under a right checksum."""

    def spoil(folder):
        facts = json.loads((folder / "run.json").read_text())
        (facts[part] if part else facts)[name] = value
        resealed(folder, "run.json", json.dumps(facts).encode())

    return spoil


NO_COUNTS = (None, float("nan"), float("inf"), 1.5, -1, 10**400, "x")
NO_TIMES = (None, float("nan"), float("inf"), 10**400, "x")
DECIDED = {"elapsed_s": 1.0, "group": 0, "kind": "pause", "before": 2, "after": 1, "why": ""}
UNFIT = [
    *(("watch", "restarts", value) for value in NO_COUNTS[1:]),
    *(("watch", "episodes", value) for value in NO_COUNTS),
    *(("run", "resumes", value) for value in NO_COUNTS),
    *(("evaluated", "n", value) for value in NO_COUNTS),
    *(("watch", "elapsed_seconds", value) for value in NO_TIMES),
    *(("run", "wall_seconds", value) for value in NO_TIMES),
    *(("run", "planning_seconds", value) for value in NO_TIMES),
    *(("run", "startup_seconds", value) for value in NO_TIMES[1:]),
    *(("watch", "lowest_ess", value) for value in NO_TIMES[1:]),
    *(("watch", name, [None]) for name in ("returns", "learned", "lengths")),
    *(("watch", name, None) for name in ("returns", "learned", "lengths", "won")),
    ("evaluated", "last", [None, 3]),
    ("evaluated", "last", [1.0, 3]),  # and no best one
    ("evaluated", "best_won", 1.0),
    ("", "rebalancing", [DECIDED | {"unit": "actors awake", "group": [0]}]),
    ("", "rebalancing", {}),
    ("", "evaluated", None),
]
SPOILERS = {
    **{f"{part} {name}={str(value)[:9]}": _with(part, name, value) for part, name, value in UNFIT},
    "run.json is another, its checksum is not": _unsealed,
    "run.json has a watch that is a list": lambda f: resealed(f, "run.json", b'{"watch": [1]}'),
    "run.json has no returns": lambda f: resealed(
        f, "run.json", b'{"watch": {"returns": 1, "lengths": [], "elapsed_seconds": 1}}'
    ),
    "run.json is not UTF-8": lambda f: resealed(f, "run.json", b'{"watch": "\xff"}'),
    "run.json is a list": lambda f: resealed(f, "run.json", b"[]"),
    "run.json is deep": lambda f: resealed(f, "run.json", b"[" * 100_000),
    "config.json is not UTF-8": lambda f: resealed(f, "config.json", b'{"config": "\xff"}'),
    "config.json is a list": lambda f: resealed(f, "config.json", b"[]"),
    "env_steps is a letter": lambda f: resealed(f, env_steps="a"),
    "updates is null": lambda f: resealed(f, updates=None),
    "version is below zero": lambda f: resealed(f, version=-1),
    "the manifest is another, its checksum is not": lambda f: (f / "manifest.json").write_text(
        '{"env_steps": "a"}'
    ),
}


@pytest.mark.parametrize("spoil", SPOILERS.values(), ids=SPOILERS)
def test_a_run_whose_newest_checkpoint_is_damaged_goes_on_from_the_one_before(run, spoil):
    *_, before, newest = checkpoint.folders_of(run)
    spoil(newest)
    config, engine = resume.reopen(run, ["exp.train_steps=9000"])
    found = resume.find(run, config)
    assert (engine, found.saved.folder) == ("local", before)
    (notice,) = [notice for notice in found.notices if "an older one is used" in notice]
    assert newest.name in notice
    assert trained.load(before).version == found.version


def test_what_a_later_version_wrote_beside_it_is_left_out(run):
    newest = checkpoint.folders_of(run)[-1]
    for part in ("watch", "run", "evaluated"):
        _with(part, "more", 1)(newest)
    assert resume.find(run, resume.reopen(run, [])[0]).saved.folder == newest
    assert tianji.resume(run, "exp.train_steps=6200").exit_status == 0


def test_a_score_that_no_number_can_be_is_none(run):
    newest = checkpoint.folders_of(run)[-1]
    resealed(newest, score=10**400)
    assert checkpoint.load(newest).score is None
    assert checkpoint.best(run) is not None


def test_a_learner_without_weights_is_named(run):
    newest = checkpoint.folders_of(run)[-1]
    data = b"".join(tensorfile.chunks({"weights": "none", "version": 1}))
    resealed(newest, "learner-0.0.safetensors", data)
    with pytest.raises(TianJiError, match="its learner has no weights"):
        trained.load(newest)


SUMMARIES = [
    {"status": "solved", "mean_return_100": "a"},
    {"status": "finished", "env_steps": "9" * 9},
    {"status": ["solved"]},
    {"status": {"a": 1}, "env_steps": 10**400},
]


@pytest.mark.parametrize("summary", SUMMARIES, ids=str)
def test_a_summary_with_values_of_other_types_is_no_traceback(run, summary):
    (run / "summary.json").write_text(json.dumps(summary))
    try:
        config, _ = resume.reopen(run, ["exp.train_steps=9000"])
        assert resume.find(run, config).saved is not None
    except TianJiError as error:
        assert str(run) in str(error)
    assert trained.load(run).version > 0


@pytest.mark.parametrize("text", [b'{"config": "\xff"}', b"[]", b"[" * 100_000, b'{"config": [1]}'])
def test_the_configuration_of_a_run_that_is_none_is_named(run, text):
    (run / "config.json").write_bytes(text)
    with pytest.raises(TianJiError, match=r"config\.json"):
        resume.reopen(run, [])
    (checkpoint.folders_of(run)[-1] / "config.json").write_bytes(text)
    with pytest.raises(TianJiError):
        trained.load(checkpoint.folders_of(run)[-1])


# ------------------------------------------------------------------- too few open files


@contextmanager
def descriptors(n):
    """Not more than `n` beyond those that are open now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    held = [os.open(os.devnull, os.O_RDONLY)]
    while held[-1] < highest:  # no number below is free
        held.append(os.open(os.devnull, os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (held[-1] + 1 + n, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in held:
            os.close(descriptor)


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
@pytest.mark.parametrize(("rows", "held"), [(100, 0), (40_000, 1)])
def test_arrays_hold_no_descriptor_each(tmp_path, rows, held):
    state = {f"array{i}": np.full(rows, i, np.float64) for i in range(60)}
    (tmp_path / "part").write_bytes(b"".join(tensorfile.chunks(state)))
    before = len(os.listdir("/proc/self/fd"))
    found = tensorfile.read(tmp_path / "part")
    assert len(os.listdir("/proc/self/fd")) - before == held
    assert all((found[name] == array).all() for name, array in state.items())


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
def test_without_a_descriptor_no_checkpoint_is_called_damaged(run):
    config, _ = resume.reopen(run, ["exp.train_steps=9000"])
    newest = checkpoint.folders_of(run)[-1]
    with descriptors(0), pytest.raises(json_file.Busy, match="ulimit -n"):
        checkpoint.load(newest)
    with descriptors(2):
        assert resume.find(run, config).saved.folder == newest


def test_a_run_with_few_descriptors_keeps_its_last_checkpoint(tmp_path):
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))

    words = ("--max-seconds", "1", "--quiet", "--set", "exp.stop_return=None")
    process = start(TASKS / "echo_ppo.py", tmp_path / "run", *words, preexec_fn=few)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert checkpoint.newest(tmp_path / "run")[0].version > 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "stopped"
