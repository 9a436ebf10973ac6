"""Whole runs in the ranks of an MPI job, on one machine and over a wire between two."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jobs
import pytest
from commands import ROOT, TASKS, eventually, rows
from jobs import ended, environment, spread, train
from mpi_pair import MISSING, mpirun

pytestmark = [pytest.mark.process, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]

NO_TARGET = ("--set", "exp.stop_return=1e9")
ENDLESS = (*NO_TARGET, "--set", "exp.train_steps=100000000")


@pytest.fixture
def start(tmp_path):
    """Starts a job of PPO and waits for more updates; returns its process, folder and ranks."""
    begun = []

    def begin(*options, machines, updates=0):
        folder = tmp_path / "run"
        process = jobs.start(TASKS / "echo_ppo.py", folder, *options, machines=machines)
        begun.append(process)
        learned = lambda: any(row["updates"] > updates for row in rows(folder))  # noqa: E731
        eventually(lambda: learned() or process.poll() is not None, 40, "more updates")
        assert process.poll() is None, process.communicate()
        return process, folder, jobs.ranks(folder)

    yield begin
    for process in begun:
        jobs.end(process, tmp_path / "run")


def stop(process, pid):
    """Ends a job in order, by telling the command that started it, or else rank 0."""
    os.kill(pid, signal.SIGTERM)
    return process.communicate(timeout=120)[1]


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def evaluations(folder):
    path = folder / "evaluations.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def sets(*overrides):
    return [word for override in overrides for word in ("--set", override)]


def finished(done, status="finished"):
    assert done.status == 0, done.err
    assert done.summary["status"] == status
    assert done.summary["engine"] == "mpi"
    assert done.summary["restarts"] == 0
    return done.summary


def test_the_command_starts_its_own_ranks_and_solves_cartpole(tmp_path):
    done = train(ROOT / "configs" / "cartpole_ppo.py", tmp_path / "run")
    summary = finished(done, "solved")
    assert summary["final_time_seconds"] < 60
    assert "solved" in done.out.lower()
    assert done.err == ""


def test_a_job_of_mpirun_trains_with_mpi_without_being_told(tmp_path):
    done = train(TASKS / "echo_dqn.py", tmp_path / "run", n=3)
    assert finished(done, "solved")["mean_return_100"] >= 9.5


def test_the_placement_is_shown_and_nothing_else_is_done(tmp_path):
    folder = tmp_path / "run"
    done = train(TASKS / "echo_ppo.py", folder, "--dry-run", machines={"a": 1, "b": 3})
    assert done.status == 0, done.err
    table = [line.split() for line in done.out.splitlines()]
    assert table[0] == ["role", "rank", "host", "cores"]
    assert [row[:3] for row in table[1:]] == [
        ["launcher", "0", "a"],
        ["learner-0.0", "1", "b"],
        ["buffer-0.0", "1", "b"],
        ["actor-0.0", "2", "b"],
        ["actor-0.1", "3", "b"],
    ]
    assert not folder.exists()


def test_two_machines_train_over_the_wire_and_counts_follow_the_balance(tmp_path):
    options = sets("exp.train_steps=6000", "actor_cfg.num=2")
    done = train(TASKS / "echo_dqn.py", tmp_path / "run", *NO_TARGET, *options,
                 machines={"a": 2, "b": 2})  # fmt: skip
    summary = finished(done)
    assert summary["consumed"] == summary["updates"] * 32
    assert abs(summary["updates"] - (summary["received"] - 64) * 8 / 32) <= 1
    assert min(summary["roles"][f"actor-0.{i}"]["produced"] for i in (0, 1)) > 0


@pytest.mark.slow
def test_cores_that_only_all_machines_together_have_are_given_and_told(tmp_path):
    offered = len(os.sched_getaffinity(0))  # by each of the machines that this one passes for
    n = 2 * offered - 1
    options = sets("exp.train_steps=2000", f"actor_cfg.num={n}", "actor_cfg.cores=1",
                   "learner_cfg.cores=1")  # fmt: skip
    done = train(TASKS / "echo_dqn.py", tmp_path / "run", *NO_TARGET, *options,
                 machines={"a": offered + 1, "b": offered})  # fmt: skip
    roles = finished(done)["roles"]
    given = [roles[f"actor-0.{i}"]["cores"] for i in range(n)] + [roles["learner-0.0"]["cores"]]
    assert [len(cores) for cores in given] == [1] * 2 * offered
    assert all(given.count([core]) == 2 for core in os.sched_getaffinity(0))


@pytest.mark.slow
def test_synchronous_samples_are_never_stale_over_the_wire(tmp_path):
    options = sets("exp.train_steps=6000")
    done = train(TASKS / "echo_ppo.py", tmp_path / "run", *NO_TARGET, *options,
                 machines={"a": 2, "b": 2})  # fmt: skip
    summary = finished(done)
    assert summary["staleness"]["max"] == 0
    assert summary["produced"] - summary["consumed"] <= 2 * 32 * 8  # what was under way at the end


@pytest.mark.slow
def test_groups_on_two_machines_are_fused(tmp_path):
    options = sets("global_cfg.group_num=2", "learner_cfg.send_root_interval=20",
                   "exp.train_steps=6000")  # fmt: skip
    done = train(TASKS / "echo_dqn.py", tmp_path / "run", *NO_TARGET, *options,
                 machines={"a": 3, "b": 3})  # fmt: skip
    summary = finished(done)
    assert summary["fusions"] == summary["roles"]["reducer-0.0"]["fusions"] > 0
    versions = [summary["roles"][f"learner-{i}.0"]["version"] for i in (0, 1)]
    assert sum(versions) == summary["updates"]
    assert min(versions) > 100


def test_learners_on_two_machines_learn_together(tmp_path):
    options = sets("learner_cfg.num=2", "exp.train_steps=3000")
    done = train(TASKS / "echo_dqn.py", tmp_path / "run", *NO_TARGET, *options,
                 machines={"a": 2, "b": 2})  # fmt: skip
    summary = finished(done)
    versions = [summary["roles"][f"learner-0.{i}"]["version"] for i in (0, 1)]
    assert versions == [summary["updates"]] * 2
    assert summary["consumed"] == summary["updates"] * 32


def test_the_policy_is_evaluated_on_another_machine_than_the_learners(start):
    options = sets("exp.eval_step=1500", "exp.eval_times=2")
    process, folder, ranks = start(*ENDLESS, *options, machines={"a": 2, "b": 3})
    eventually(lambda: len(evaluations(folder)) >= 2, 40, "two evaluations")
    stop(process, ranks["launcher"])
    assert summary(folder)["status"] == "interrupted"
    rows = evaluations(folder)
    steps, versions = ([row[name] for row in rows] for name in ("env_steps", "updates"))
    assert steps == sorted(steps) and steps[0] > 0  # as seen now and then
    assert versions[0] < versions[1]


@pytest.mark.parametrize(
    "machines",
    [pytest.param(None, id="one machine", marks=pytest.mark.slow), {"a": 2, "b": 2}],
)
def test_a_run_goes_on_with_the_same_command_where_it_was_stopped(start, machines):
    done = 0
    for resumes in (0, 1):
        process, folder, ranks = start(*ENDLESS, machines=machines, updates=done)
        err = stop(process, process.pid if machines is None else ranks["launcher"])
        told = summary(folder)
        assert (told["status"], told["resumes"]) == ("interrupted", resumes), err
        assert told["updates"] > done
        done = told["updates"]
    assert "resumed from" in err


WORDS = """
import os, sys, time
from pathlib import Path
from tianji.transports.mpi import World

world, said = World(), Path(sys.argv[1])
if world.rank == 0:  # does not look at MPI before the other has gone on
    deadline = time.monotonic() + 8
    while not said.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    how = "gone on" if said.exists() else "waited"
    print(how, len(world.hear(1, 10)["text"]))
else:
    world.say(0, {"text": "x" * 3000})
    said.touch()
    world.settle()
os._exit(0)
"""


def test_who_says_something_goes_on_before_it_is_heard(tmp_path):
    line = mpirun(2, sys.executable, "-c", WORDS, tmp_path / "said")
    done = ended(line, tmp_path / "run")
    assert done.out == "gone on 3000\n", done.err


MEETS = """
from tianji.transports.mpi import MEET, World

class Talking(World):
    def __init__(self, rank):
        self.rank, self.done = rank, []
    def say(self, rank, what, tag):
        self.done.append(f"say {rank}")
    def hear(self, rank, seconds, check=None, tag=None):
        self.done.append(f"hear {rank}")
        return {} if rank != 3 else None  # who does not come in time is not spoken to
    def settle(self):
        pass

world = Talking(1)
world._meet([0, 2, 3])
print(*world.done, sep=", ")
"""


def test_the_higher_of_two_ranks_speaks_first(tmp_path):
    """Open MPI loses connections that both ends open at a time."""
    done = subprocess.run([sys.executable, "-c", MEETS], capture_output=True, text=True, timeout=60)
    assert done.stdout == "say 0, hear 2, say 2, hear 3, hear 0\n", done.stderr


FORGETS = """
import gc, weakref
import numpy as np
from tianji.transports.mpi_wire import MpiWire
from tianji.transports.wire import Note, Word

class Comm:
    def __init__(self):
        self.memory = []
    def Irecv(self, memory, peer, tag):
        self.memory.append(weakref.ref(memory))
        return object()

comm = Comm()
wire = MpiWire(comm, [1])
wire.receive(1, Note(Word.MESSAGE), np.empty(100_000, np.uint8))
posted = len(comm.memory)
wire.forget(1)
gc.collect()
print(posted, sum(memory() is not None for memory in comm.memory), len(wire._flights))
"""


def test_the_memory_of_posted_receives_outlives_a_peer_that_was_forgotten():
    line = [sys.executable, "-c", FORGETS]
    done = subprocess.run(line, capture_output=True, text=True, env=environment(), timeout=60)
    assert done.stdout == "5 5 0\n", done.stderr


MISTAKEN = """
import sys
from types import SimpleNamespace
from tianji.transports import mpi_wire
from tianji.transports.wire import Happening, Word

class Failure(Exception):
    pass

class Comm:
    def __init__(self):
        self.memory, self.known = [], []
    def Irecv(self, memory, peer, tag):
        self.memory.append(memory)
        return len(self.memory)
    def Get_group(self):
        return None
    def Get_failed(self):
        dead = self.known.pop(0) if self.known else [1, 3]
        return SimpleNamespace(Translate_ranks=lambda ranks, group: dead)

class Request:
    @staticmethod
    def Testsome(requests, statuses):
        for i in (0, 1, 2, 3, 4, 8, 9, 10, 11):  # all of 1 and of 3, and a note of 2
            requests[i] = NULL
        looked_at = [(2, 0), *[(int(sys.argv[1]), 75)] * 4]  # 1 has died since
        for status, (status.source, status.error) in zip(statuses, looked_at):
            pass
        raise Failure

NULL = "null"
Status = lambda: SimpleNamespace(source=-1, error=0)
mpi_wire.MPI = SimpleNamespace(Exception=Failure, REQUEST_NULL=NULL, Request=Request, Status=Status)
comm = Comm()
wire = mpi_wire.MpiWire(comm, [1, 2, 3])
comm.memory[4][:8].view("i8")[0] = Word.BEAT
comm.known = [[]] * int(sys.argv[2])
print(sorted((event.peer, event.what.name) for event in wire.poll()))
"""


@pytest.mark.parametrize(
    ("source", "times_unknown"),
    [(3, 0), (3, 1), (0, 1)],
    ids=["known at once", "known by a receive", "known after a send"],
)
def test_of_peers_that_die_at_a_time_none_that_lives_is_taken_for_dead(source, times_unknown):
    """MPI tells less than it has cleared: its answers do not lie beside the questions."""
    line = [sys.executable, "-c", MISTAKEN, str(source), str(times_unknown)]
    done = subprocess.run(line, capture_output=True, text=True, env=environment(), timeout=60)
    assert done.stdout == "[(1, 'LOST'), (2, 'NOTED'), (3, 'LOST')]\n", done.stderr


def test_what_was_sent_before_a_goodbye_is_received_before_the_loss_is_told(tmp_path):
    child = Path(__file__).with_name("wire_child.py")
    line = spread({"a": 2}, [sys.executable, str(child), str(tmp_path)])
    done = ended(line, tmp_path / "run")
    told = done.out.split()
    assert told.count("MESSAGE") == told.count("RECEIVED") == 10, done.err
    assert told.index("LEFT") > told.index("CLOSED")
    assert told[-2:] == ["LOST", "7000"]
