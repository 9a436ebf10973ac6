"""A replay follows the record of a run to the same weights, and says where it cannot."""

import json
import shutil
import sys

import numpy as np
import pytest
from commands import TASKS
from hypothesis import given, settings
from hypothesis import strategies as st

from tianji import config as configs
from tianji.cli import replay as verb
from tianji.core.channel import Message
from tianji.core.errors import BudgetSpent, TianJiError
from tianji.core.frames import BEFORE, FIRST, MEMORY
from tianji.core.schema import Field, Schema
from tianji.core.tracer import What
from tianji.engines import replay as engine
from tianji.job import factory
from tianji.job.job import prepare
from tianji.job.wiring import channels_of
from tianji.models import precision
from tianji.models.precision import CANDIDATES
from tianji.observe import replay_record
from tianji.observe.replay_record import ROW, STEP, path_of, steps_of
from tianji.roles import Buffer, Learner
from tianji.roles.role_specs import roles_of
from tianji.runs import folder as run_folder
from tianji.runs import replay, start
from tianji.transports.local import LocalTransport

SHORT = ("exp.train_steps=1500", "model.hidden=[8]")
JOBS = {
    "synchronous ppo": ("walk_ppo",),
    "asynchronous ppo": ("walk_ppo", "hyp.mode=async", "hyp.batch_size=1", "actor_cfg.num=3"),
    "ppo with lag 3": ("walk_ppo", "hyp.mode=async", "hyp.buffer_size=6", "hyp.batch_size=2"),
    "dqn": ("walk_dqn", "actor_cfg.num=3", "learner_cfg.send_interval=2"),
    "convolutions": ("catch_impala", "actor_cfg.envs=4", "exp.stop_return=1e9"),
    "dqn with priorities": ("echo_apex", "exp.stop_return=1e9", "exp.train_steps=600"),
}
JOBS_MADE = {}


def job_of(name, *more):
    if (name, more) not in JOBS_MADE:
        task, *overrides = JOBS[name]
        config = configs.load(TASKS / f"{task}.py", (*SHORT, *overrides, *more))
        env = factory.make_env(config)
        env.close()
        JOBS_MADE[name, more] = prepare(config, env.spec)
    return JOBS_MADE[name, more]


def train(job, folder, seed, most=200_000):
    """Gives roles their turns in any order and records them; returns the learner."""
    random, transport = np.random.default_rng(seed), LocalTransport(channels_of(job))
    roles = [factory.build(spec, job, transport) for spec in roles_of(job.config)]
    run_folder.identify(folder, job.config, "process", {})
    recording = replay_record.record(roles, job.config, folder)
    favour = random.random(len(roles)) ** 2 + 0.05
    try:
        for turn in range(most):
            left = [i for i, role in enumerate(roles) if not role.done]
            if not left:
                break
            if turn % 200 == 0:
                recording.flush()
            for role in roles:
                role.paused = role.name == "actor-0.0" and turn % 1000 > 700
                role.apart = isinstance(role, Buffer) and turn % 3000 > 1000
            roles[random.choice(left, p=favour[left] / favour[left].sum())].step()
    finally:
        recording.close()
    return next(role for role in roles if isinstance(role, Learner))


def check(name, folder, seed):
    job = job_of(name)
    learner = train(job, folder, seed)
    replayed = replay.replay(folder)
    followed = replayed.followed
    assert (replayed.exit_status, followed.missing) == (0, "")
    assert followed.updates == learner.version > 4
    assert followed.checks > 0
    np.testing.assert_array_equal(followed.weights, learner.algorithm.weights())


@pytest.mark.parametrize("name", JOBS)
def test_a_replay_comes_to_the_same_weights_whatever_the_order_was(tmp_path, name):
    check(name, tmp_path, seed=3)


def test_convolutions_compute_in_the_format_that_the_run_had_chosen(tmp_path, monkeypatch):
    job = job_of("convolutions")
    one, other = CANDIDATES[:2]
    monkeypatch.setattr(precision, "_seconds", lambda *_: {one: 2.0, other: 1.0})
    monkeypatch.setattr(precision, "_chosen", {})
    train(job, tmp_path, 1)
    monkeypatch.setattr(precision, "_seconds", lambda *_: {one: 1.0, other: 2.0})
    precision._chosen.clear()
    assert replay.replay(tmp_path).exit_status == 0


def test_a_format_that_this_cpu_does_not_have_is_said_in_a_line(tmp_path, monkeypatch):
    job = job_of("convolutions", "model.precision=bfloat16", "exp.train_steps=200")
    monkeypatch.setattr(precision, "has_bf16", lambda: True)
    train(job, tmp_path, 1)
    monkeypatch.setattr(precision, "has_bf16", lambda: False)
    with pytest.raises(TianJiError, match="the run computed in bfloat16, channels last, which th"):
        replay.replay(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_and_so_it_does_for_many_orders(tmp_path_factory, name, seed):
    check(name, tmp_path_factory.mktemp("run"), seed)


def test_the_order_matters(tmp_path):
    job = job_of("asynchronous ppo")
    weights = []
    for seed in (1, 2):
        (tmp_path / str(seed)).mkdir()
        weights.append(train(job, tmp_path / str(seed), seed).algorithm.weights().copy())
    assert not np.array_equal(*weights)


def test_a_record_has_a_few_bytes_for_a_trajectory(tmp_path):
    train(job_of("asynchronous ppo"), tmp_path, 1)
    rows = replay_record.read(tmp_path, "buffer-0.0", job_of("asynchronous ppo").config)
    assert (ROW.size, STEP.itemsize) == (12, 4)
    n_trajectories = rows.what.count(replay_record.Taken.TRAJECTORY)
    assert len(rows.what) == n_trajectories + 1
    assert rows.steps.stat().st_size == n_trajectories * 32 * STEP.itemsize


def test_it_says_at_which_step_an_environment_did_not_repeat_itself(tmp_path):
    job = job_of("asynchronous ppo", "environment.type=walk:Gusty")
    train(job, tmp_path, 1)
    with pytest.raises(engine.Left, match=r"left the record in step \d+ of actor-0\.\d \("):
        replay.replay(tmp_path)


@pytest.mark.parametrize(("name", "length"), [("asynchronous ppo", 32), ("dqn", 16)])
def test_it_names_the_step_in_which_something_else_was_seen_once(
    tmp_path, monkeypatch, name, length
):
    train(job_of(name, "environment.type=walk:Glimpse", "actor_cfg.num=1"), tmp_path, 1)
    monkeypatch.setenv("GLIMPSE_AT", "101")
    number, step = divmod(100, length)
    words = rf"in step 101 of actor-0\.0 \(step {step + 1} of its trajectory {number + 1}\), before"
    with pytest.raises(engine.Left, match=words):
        replay.replay(tmp_path)


def test_it_names_the_trajectory_where_the_checksums_of_its_steps_are_lost(tmp_path, monkeypatch):
    train(job_of("dqn", "environment.type=walk:Glimpse", "actor_cfg.num=1"), tmp_path, 1)
    steps_of(tmp_path, "buffer-0.0").unlink()
    monkeypatch.setenv("GLIMPSE_AT", "101")
    words = r"in steps 97 to 112 of actor-0\.0 \(its trajectory 7\), before"
    with pytest.raises(engine.Left, match=words):
        replay.replay(tmp_path)


EVERYTHING = Schema(
    (
        Field("length", "int64"),
        Field("obs", "uint8", (6, 2, 50, 50)),  # wide
        Field("state", "float32", (6, 2, 3)),
        *(Field(name, "float32", (5, 2)) for name in ("action", "log_probability", "reward")),
        *(Field(name, "bool", (5, 2)) for name in ("terminated", "truncated", "valid")),
        Field("final_state", "float32", (5, 2, 3)),
        Field(FIRST, "bool", (6, 2)),
        Field(BEFORE, "uint8", (5, 2, 50, 50)),
        Field(MEMORY, "float32", (2, 7)),
    )
)


@pytest.mark.parametrize("name", [field.name for field in EVERYTHING.fields[1:]])
def test_a_checksum_covers_every_array_of_a_trajectory_in_the_step_that_differs(name):
    message, n_seen = Message(EVERYTHING.empty(), 3, 0), 4
    array = message.arrays[name]
    message.arrays["length"][...] = n_seen
    checksums = replay_record.Checksums(message.arrays)
    before = steps_in(checksums, message)
    for row in range(len(array)):
        step = max(0, row - 1) if len(array) == 6 else row  # from 0
        if name in (BEFORE, MEMORY):  # known before the first step
            step = 0
        last = array[row].reshape(-1)[-1:]
        last[...] = 1
        differ = [a != b for a, b in zip(before, steps_in(checksums, message), strict=True)]
        assert differ == [i == step for i in range(n_seen)]
        last[...] = 0


def steps_in(checksums, message):
    return np.frombuffer(checksums.of(message), STEP)


def test_a_checksum_covers_the_version_of_the_weights():
    arrays = EVERYTHING.empty()
    arrays["length"][...] = 4
    checksums = replay_record.Checksums(arrays)
    assert checksums.of(Message(arrays, 3, 0)) != checksums.of(Message(arrays, 4, 0))


def test_checksums_that_are_put_off_are_those_that_large_trajectories_get_at_once(monkeypatch):
    random, records = np.random.default_rng(0), []
    messages = [Message(EVERYTHING.empty(), version, version) for version in range(3)]
    for message in messages:
        message.arrays["obs"][...] = random.integers(0, 255, message.arrays["obs"].shape)
        message.arrays["length"][...] = 5 - message.version
    for large in (0, 1 << 20):
        monkeypatch.setattr(replay_record, "LARGE", large)
        records.append(record := replay_record.RoleRecord(np.zeros(0)))
        for message in messages:
            record.received(What.TRAJECTORY, message, 1)
        record.settle()
    assert records[0].rows == records[1].rows and len(records[0].rows) == 3 * ROW.size
    assert records[0].steps == records[1].steps and len(records[0].steps) == 12 * STEP.itemsize


def test_weights_that_differ_are_a_record_that_was_left(tmp_path):
    job = job_of("dqn")
    train(job, tmp_path, 1)
    path = path_of(tmp_path, "learner-0.0")
    data = bytearray(path.read_bytes())
    data[-2 * ROW.size + 4] ^= 1  # the value of the last checksum
    path.write_bytes(data)
    with pytest.raises(engine.Left, match=r"by update \d+: the weights are not those"):
        replay.replay(tmp_path)


def test_a_failure_happens_again(tmp_path):
    job = job_of("asynchronous ppo", "environment.type=walk:Pitfall", "global_cfg.restarts=0")
    with pytest.raises(BudgetSpent, match="a pit"):
        train(job, tmp_path, 1)
    with pytest.raises(BudgetSpent, match="a pit") as raised:
        replay.replay(tmp_path)
    assert raised.value.__notes__[0].startswith("in the replay of actor-0.")


@pytest.mark.parametrize("role", ["actor-0.1", "buffer-0.0", "learner-0.0"])
def test_a_record_that_was_cut_is_followed_to_where_it_ends(tmp_path, capsys, role):
    train(job_of("asynchronous ppo"), tmp_path, 1)
    path = path_of(tmp_path, role)
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    n_rows = (len(whole) - first) // ROW.size
    path.write_bytes(whole[: first + n_rows // 2 * ROW.size + 5])
    replayed = replay.replay(tmp_path)
    assert replayed.exit_status == 1
    assert f"the record of {role} ends there" in verb.describe(replayed)
    assert path.read_bytes() == whole[: first + n_rows // 2 * ROW.size + 5]  # nothing is lost


def test_what_was_done_after_the_interruption_is_not_recorded(tmp_path, capsys):
    job = job_of("dqn")
    train(job, tmp_path, 1)
    there = path_of(tmp_path, "buffer-0.0").read_bytes()
    transport = LocalTransport(channels_of(job))
    roles = [factory.build(spec, job, transport) for spec in roles_of(job.config)]
    assert replay_record.record(roles, job.config, tmp_path) is None
    assert "the record of an earlier process" in capsys.readouterr().err
    assert path_of(tmp_path, "buffer-0.0").read_bytes() == there


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded") / "run"
    folder.mkdir()
    train(job_of("dqn"), folder, 1, most=500)
    return folder


def other_heading(folder, **changes):
    path = path_of(folder, "buffer-0.0")
    line, _, rows = path.read_bytes().partition(b"\n")
    path.write_bytes(json.dumps(json.loads(line) | changes).encode() + b"\n" + rows)


def without_record(folder):
    shutil.rmtree(folder / "record")


def without_a_role(folder):
    path_of(folder, "actor-0.2").unlink()


def of_another_config(folder):
    about = json.loads((folder / "config.json").read_text())
    about["config"]["hyp"]["LR"] = 0.5
    (folder / "config.json").write_text(json.dumps(about))


def of_another_version(folder):
    other_heading(folder, versions={"tianji": "0.2.0"})


def of_another_format(folder):
    other_heading(folder, record=1)


def without_formats(folder):
    other_heading(folder, formats=None)


def without_a_heading(folder):
    path_of(folder, "buffer-0.0").write_bytes(b"\0" * 40)


def empty(folder):
    path_of(folder, "buffer-0.0").write_bytes(b"")


def with_strange_rows(folder):
    with path_of(folder, "buffer-0.0").open("ab") as file:
        file.write(b"\xff" * ROW.size)


def of_no_run(folder):
    (folder / "config.json").unlink()


DAMAGES = {
    without_record: "has no record: only what was trained with `tianji train --record`",
    without_a_role: "actor-0.2.rows: there is no such file",
    of_another_config: "is the record of another configuration than",
    of_another_version: "was written with other versions (tianji 0.2.0 there, ",
    of_another_format: "is a record in format 1, and this version reads format 3: replay it with",
    without_formats: "buffer-0.0.rows is damaged: its first line tells no number formats",
    without_a_heading: "buffer-0.0.rows is damaged, it is no JSON",
    empty: "buffer-0.0.rows is damaged, it is no JSON",
    with_strange_rows: "tells of nothing that is known",
    of_no_run: "holds no run to replay",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_no_record_of_the_run_is_refused(recorded, tmp_path, damage):
    folder = shutil.copytree(recorded, tmp_path / "run")
    damage(folder)
    with pytest.raises(TianJiError) as raised:
        replay.replay(folder, trust=True)
    assert DAMAGES[damage] in str(raised.value)


def test_the_page_shows_what_is_printed():
    page = (TASKS.parents[1] / "docs" / "replay.md").read_text()
    shown = engine.Followed(15, 60_594, 1, np.zeros(0, np.float32), "")
    assert verb.describe(replay.Replayed(shown, final=True)) in " ".join(page.split())


def test_a_run_that_begins_again_forgets_its_record(recorded, tmp_path):
    folder = shutil.copytree(recorded, tmp_path / "run")
    replay_record.forget(folder)
    assert not any((folder / replay_record.FOLDER).iterdir())


def test_a_full_disk_ends_a_record_and_not_the_run(tmp_path, capsys):
    job = job_of("dqn")
    transport = LocalTransport(channels_of(job))
    roles = [factory.build(spec, job, transport) for spec in roles_of(job.config)]
    recording = replay_record.record(roles, job.config, tmp_path)
    for _ in range(400):
        for role in roles:
            role.step()
    for file, _ in recording._files:
        file.close()
    full = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
    recording._files = [(full, waiting) for _, waiting in recording._files]
    recording.flush()
    assert "the record ends here: No space left on device" in capsys.readouterr().err
    for role in roles:
        role.step()
    recording.flush()
    recording.close()


REFUSED = {
    ("local", ()): "use --engine process",
    ("mpi", ()): "engine mpi keeps no record: use --engine process",
    ("process", ("learner_cfg.device='cuda'",)): "learner_cfg.device: a GPU does not",
    ("process", ("actor_cfg.device='cuda'",)): "actor_cfg.device: a GPU does not",
    ("process", ("global_cfg.group_num=2",)): "want one group with one learner",
    ("process", ("learner_cfg.num=2",)): "want one group with one learner",
    ("process", ("exp.trace_seconds=1",)): "traced or recorded, not both",
}


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_recording_is_refused_where_nothing_could_be_replayed(case, monkeypatch):
    monkeypatch.setattr(start.resources, "gpu_of", {"cpu": None, "cuda": "a GPU"}.get)
    monkeypatch.setitem(sys.modules, "tianji.transports.mpi", None)  # as the command line loads it
    name, more = case
    config = configs.load(TASKS / "walk_dqn.py", ("exp.record=True", *more))
    with pytest.raises(TianJiError) as raised:
        start.refuse(config, name)
    assert REFUSED[case] in str(raised.value)
