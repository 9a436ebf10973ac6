"""Any bytes in any file that comes from outside give a value or a `TianJiError`, soon."""

import hashlib
import json
import resource
import struct
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from commands import TASKS
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import evaluation, write_rows
from profiles import plan_for
from recordings import folder_of_a_run, heading, record

import tianji
from tianji.config import from_json
from tianji.config import load as load_config
from tianji.core import append_log, checkpoint, json_file, tensorfile
from tianji.core.counts import Count
from tianji.core.errors import TianJiError
from tianji.core.status import Status
from tianji.job.factory import make_env
from tianji.job.job import prepare
from tianji.job.wiring import channels_of
from tianji.machine import hostfile
from tianji.observe import episode_file, replay_record
from tianji.observe.episode_file import Line
from tianji.observe.evaluation_file import rewind_rows
from tianji.observe.limits import Limits
from tianji.observe.replay_record import Taken
from tianji.observe.report.run_files import stamp_of
from tianji.observe.report.run_reader import RunReader
from tianji.observe.summary import describe
from tianji.observe.trace.format import Doing
from tianji.observe.trace.timeline import save
from tianji.observe.trace.trace_reader import read as read_trace
from tianji.observe.watch import Watch
from tianji.runs import resume, trained, weights_file
from tianji.runs.checkpoint_schedule import _score
from tianji.runs.run import Run
from tianji.strategy.plan import plan_file
from tianji.transports.local import LocalTransport

SECONDS = 5.0  # that one file may take, on a busy machine
ROOM = 1 << 30  # bytes that it may take


@contextmanager
def bounded():
    """Within time and memory; what is refused is a `TianJiError`."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, limits[1]))
    began = time.process_time()
    try:
        yield
    except TianJiError as error:
        assert str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert time.process_time() - began < SECONDS


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run with checkpoints, a trace and a plan, of which each test spoils one file."""
    overrides = ["exp.train_steps=700", "exp.save_freq=2", "model.hidden=[4]"]
    run = tmp_path_factory.mktemp("fuzz") / "run"
    tianji.train(TASKS / "walk_ppo.py", *overrides, engine="local", run_dir=run)
    folder_of_a_run(run.parent)
    record(run, heading(), (0, Doing.UPDATE, 1.0, 2.0, 0, 0), (0, Doing.ACT, 2.0, 3.0, 2.5, 3.0))
    plan_file.write(plan_for(load_config(TASKS / "cartpole_dqn.py")), run / "plan.json")
    (run / "hosts").write_text("node1 slots=4 # two\nnode2 port=22 max_slots=8\n10.0.0.1\n")
    (run / "record").mkdir()
    rows = struct.pack("<HHII", Taken.TRAJECTORY, 0, 7, 9) + struct.pack(
        "<HHII", Taken.END, 0, 1, 0
    )
    (run / "record" / "learner-0.0.rows").write_bytes(
        replay_record.heading("learner-0.0", _job()) + rows
    )
    (run / "record" / "learner-0.0.steps").write_bytes(bytes(40))
    write_rows(run / "evaluations.jsonl", [evaluation(steps, 9.0) for steps in (100, 400)])
    write_rows(run / "balance.jsonl", [{"kind": "actors", "before": 2, "after": 1}] * 2)
    (run / "progress.json").write_bytes((run / "summary.json").read_bytes())
    episode_file.write(run, [Line(0.1 * i, i % 2, 10 * i, i, 9.0, 10, 4.5) for i in range(9)])
    (run / "job.py").write_text((TASKS / "walk_ppo.py").read_text())
    return run


def _report(run):
    reader = RunReader(run)
    reader.refresh()
    json.dumps(reader.document())


def _report_in_progress(run):
    """Of a run that goes on: what the summary says is older."""
    reader = RunReader(run, before=stamp_of(run / "summary.json"))
    reader.refresh()
    json.dumps(reader.document(live=True))


def _evaluations(run):
    _report(run)
    rewind_rows(run, 300)


def _trace(run):
    save(read_trace(run), run / "timeline.json")


def _newest(run):
    found, _ = checkpoint.newest(run, resume.facts_of)
    if found is not None:
        found.part("learner-0.0")


def _goes_on(run):
    """All that the launcher does with what it knew, from taking it up to the last words."""
    saved = checkpoint.open_checkpoint(sorted(run.glob(LAST))[-1])
    data = (saved.folder / "run.json").read_bytes()  # as if it had been sealed
    saved.manifest["files"]["run.json"]["sha256"] = hashlib.sha256(data).hexdigest()
    resumed = resume.Resumed(saved, resume.facts_of(saved))
    job = prepare(_job(), make_env(_job()).spec)
    with TemporaryDirectory(dir=run.parent) as folder, np.errstate(all="ignore"):
        watch = Watch(job, LocalTransport(channels_of(job)))
        watch.restore(resumed.facts["watch"])
        again = Run(job, "local", Path(folder), quiet=True, resumed=resumed)
        watch.progress.started_at = time.monotonic()
        for counts in watch.progress.counts.values():
            counts[[Count.VERSION, Count.CONSUMED]] = 1  # the last words tell of updates
        Limits(job).reached(watch.poll())
        again.tick(watch.progress)
        _score(watch.progress)
        json.dumps({"watch": watch.state(), **again.state(watch.progress)})
        describe(again.finish(Status.FINISHED, watch.progress), Path(folder))


def _config(run):
    from_json(json_file.section(json_file.load_json(run / "config.json").get("config")))


LAST = "checkpoints/0*-step-*"
READERS = {
    "plan.json": lambda run: plan_file.read(run / "plan.json"),
    "hosts": lambda run: hostfile.check(run / "hosts", 3),
    "job.py": lambda run: load_config(run / "job.py"),
    "config.json": lambda run: (_config(run), _report(run), trained.load(run)),
    "summary.json": lambda run: (_report(run), resume.reopen(run, ["exp.train_steps=9000"])),
    "metrics.jsonl": _report,
    "progress.json": _report_in_progress,
    "evaluations.jsonl": _evaluations,
    "balance.jsonl": lambda run: append_log.open_lines(run / "balance.jsonl").close(),
    "episodes.csv": episode_file.read,
    "trace/actor-0.0.trace": _trace,
    "checkpoints/final.safetensors": lambda run: weights_file.read(
        run / "checkpoints" / "final.safetensors"
    ),
    f"{LAST}/manifest.json": _newest,
    f"{LAST}/run.json": _goes_on,
    f"{LAST}/learner-0.0.safetensors": lambda run: tensorfile.read(
        sorted(run.glob(f"{LAST}/learner-0.0.safetensors"))[-1]
    ),
    "record/learner-0.0.rows": lambda run: replay_record.read(run, "learner-0.0", _job()),
    "record/learner-0.0.steps": lambda run: replay_record.left_at(
        run / "record" / "learner-0.0.steps", 2, struct.pack("<2I", 0, 1)
    ),
}


@cache
def _job():
    return load_config(TASKS / "walk_ppo.py")


@contextmanager
def spoilt(run, name, spoil):
    """The file is another for a while."""
    path = sorted(run.glob(name))[-1] if "*" in name else run / name
    before = path.read_bytes() if path.exists() else b""
    path.write_bytes(spoil(before))
    try:
        yield
    finally:
        path.write_bytes(before)


# Not only noise: the words and the brackets that the readers know.
WORDS = st.sampled_from(
    b'{ } [ ] , : " 0 -1 1e999 NaN null true 9999999999999999999999 "config" "watch" "tianji_plan" '
    b"slots= # node1 __metadata__ F32 dtype shape data_offsets \xff \0".split(b" ")
)
ANY = st.binary(max_size=300) | st.lists(WORDS, max_size=60).map(b" ".join)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=20)
@given(data=ANY)
def test_any_bytes_give_a_value_or_an_error(place, name, data):
    with spoilt(place, name, lambda _: data), bounded():
        READERS[name](place)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=20)
@given(
    where=st.floats(0, 1),
    cut=st.sampled_from([0, 0, 1, 7, 400]),
    data=st.binary(min_size=1, max_size=9) | WORDS | st.sampled_from([b"[" * 9_999, b"9" * 9_999]),
)
def test_a_file_with_a_few_other_bytes_gives_a_value_or_an_error(place, name, where, cut, data):
    def spoil(whole):
        at = int(where * len(whole))
        return whole[:at] + data + whole[at + cut :]

    with spoilt(place, name, spoil), bounded():
        READERS[name](place)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def _places(value, path=()):
    """The ways to everything in a document."""
    yield path
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield from _places(inner, (*path, key))


@pytest.mark.parametrize("name", [name for name in READERS if name.endswith(".json")])
@settings(max_examples=20)
@given(choice=st.randoms(use_true_random=False), value=JSON)
def test_any_value_in_any_place_of_a_document_gives_a_value_or_an_error(place, name, choice, value):
    def spoil(whole):
        document = json.loads(whole)
        *way, key = choice.choice([way for way in _places(document) if way])
        inner = document
        for step in way:
            inner = inner[step]
        inner[key] = value
        return json.dumps(document).encode()

    with spoilt(place, name, spoil), bounded():
        READERS[name](place)
