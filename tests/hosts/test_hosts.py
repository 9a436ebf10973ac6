"""Runs over several machines: network namespaces with a link of 1 Gbit/s, made by the tests.

Memory and files are still those of one machine, so the bytes are counted on the link.
"""

import json
import os
import signal
import sys
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import benches  # noqa: F401
import pytest
from commands import ROOT, eventually, rows
from transmission import hosts as made

from tianji.config import load
from tianji.machine.placement import n_ranks, place

REFUSAL = made.refusal() if find_spec("mpi4py") else "mpi4py is not installed"
pytestmark = [pytest.mark.hosts, pytest.mark.skipif(REFUSAL is not None, reason=str(REFUSAL))]

PPO, DQN = (ROOT / "configs" / f"cartpole_{name}.py" for name in ("ppo", "dqn"))
ENDLESS = "exp.stop_return=1000"  # which no episode of CartPole returns
LINK_SECONDS = 4
OBSERVATION_BYTES = 16  # of CartPole, four numbers; an actor sends each one and more


@pytest.fixture
def hosts():
    with made.Hosts(2) as hosts:
        yield hosts


class Cluster:
    """One run on two hosts, started in the first."""

    def __init__(self, hosts, folder, config, *overrides, slots=None):
        self.hosts, self.folder, self.config = hosts, folder, load(config, overrides)
        self.slots = slots or -(-n_ranks(self.config) // len(hosts))
        words = [sys.executable, "-m", "tianji", "train", str(config), "--engine", "mpi"]
        words += ["--hostfile", str(hosts.hostfile(self.slots)), "--run-dir", str(folder)]
        self.command = [*words, "--quiet", *(f"--set={each}" for each in overrides)]

    @contextmanager
    def running(self):
        """The run in the background; its output goes into files beside its folder."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PRTE_MCA_plm_ssh_agent": str(self.hosts.agent()),
        }
        with open(self.out, "w") as out, open(self.err, "w") as err:
            process = self.hosts[0].start(self.command, stdout=out, stderr=err, env=environment)
            try:
                yield process
            finally:
                process.terminate()
                process.wait(timeout=120)

    @property
    def out(self):
        return self.folder.with_suffix(".out")

    @property
    def err(self):
        return self.folder.with_suffix(".err")

    @property
    def n_back(self):
        """How many lost processes it has said to be back."""
        return self.err.read_text().count("is back after")

    @property
    def summary(self):
        return json.loads((self.folder / "summary.json").read_text())

    def learns(self, process, n_rows=1):
        """Waits until the run has written some rows of metrics."""
        ended = lambda: process.poll() is not None  # noqa: E731
        eventually(lambda: len(rows(self.folder)) >= n_rows or ended(), 60, "the first updates")
        assert not ended(), self.err.read_text()

    def host_of(self, home):
        """The number of the host that a process of the run is on."""
        names = [f"host{i // self.slots}" for i in range(n_ranks(self.config))]
        return place(self.config, names)[home] // self.slots

    def process_of(self, home):
        """The number of the process with that rank."""
        names = [f"host{i // self.slots}" for i in range(n_ranks(self.config))]
        wanted = place(self.config, names)[home]
        pids = [pid for host in self.hosts.hosts for pid in host.processes()]
        (found,) = [pid for pid in pids if rank_of(pid) == wanted]
        return found

    def ranks(self, i):
        """The ranks that still run in a host."""
        return [pid for pid in self.hosts[i].processes() if rank_of(pid) is not None]


def logged(pid):
    """The file that a process writes its words into."""
    try:
        return os.readlink(f"/proc/{pid}/fd/1")
    except OSError:
        return ""


def rank_of(pid):
    """The rank of a process, from its environment; None for all that is no rank."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    found = dict(word.partition(b"=")[::2] for word in words)
    rank = found.get(b"OMPI_COMM_WORLD_RANK")
    return None if rank is None else int(rank)


def test_cartpole_is_solved_across_two_hosts_and_the_link_has_carried_it(hosts, tmp_path):
    run = Cluster(hosts, tmp_path / "run", PPO, "actor_cfg.num=2", "exp.seed=1")
    before = hosts[0].sent_bytes() + hosts[0].received_bytes()
    with run.running() as process:
        assert process.wait(timeout=120) == 0, run.err.read_text()
    carried = hosts[0].sent_bytes() + hosts[0].received_bytes() - before
    summary = run.summary
    assert (summary["status"], summary["engine"]) == ("solved", "mpi")
    assert {run.host_of("actor-0.0"), run.host_of("actor-0.1")} == {0, 1}
    assert carried > summary["env_steps"] / 2 * OBSERVATION_BYTES  # half of it came from far away
    assert not run.ranks(0) and not run.ranks(1)


def test_training_goes_on_without_an_actor_that_was_killed_on_the_other_host(hosts, tmp_path):
    alone = ("actor_cfg.num=3", "global_cfg.restarts=0", ENDLESS)
    run = Cluster(hosts, tmp_path / "run", DQN, *alone)
    with run.running() as process:
        run.learns(process)
        away = next(home for home in ("actor-0.2", "actor-0.1") if run.host_of(home) == 1)
        os.kill(run.process_of(away), signal.SIGKILL)
        before = len(rows(run.folder))
        eventually(lambda: "goes on without it" in run.err.read_text(), what="a word about it")
        run.learns(process, before + 2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 143
    assert run.summary["status"] == "interrupted" and away in run.err.read_text()
    eventually(lambda: not run.ranks(0) and not run.ranks(1), what="the end of all ranks")


AT_LENGTH = pytest.param(3, 0, marks=pytest.mark.slow)


@pytest.mark.parametrize(("slots", "learner"), [(2, 1), AT_LENGTH])
def test_a_lost_host_ends_the_run_and_the_same_command_goes_on(hosts, tmp_path, slots, learner):
    given = ("actor_cfg.num=2", "exp.save_seconds=1", ENDLESS)
    run = Cluster(hosts, tmp_path / "run", DQN, *given, slots=slots)
    assert run.host_of("learner-0.0") == learner
    with run.running() as process:
        run.learns(process)
        eventually(lambda: list(run.folder.glob("checkpoints/*-step-*")), 30, "a checkpoint")
        hosts[1].lose()
        assert process.wait(timeout=120) == 1
    assert run.summary["status"] == "failed" and "host1" in run.summary["error"]
    assert "host1" in run.err.read_text() and not run.ranks(0)
    steps = run.summary["env_steps"]
    with run.running() as process:
        eventually(lambda: "resumed from" in run.err.read_text(), 40, "the resumption")
        eventually(lambda: rows(run.folder)[-1]["env_steps"] > steps, 40, "new steps")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 143
    assert run.summary["status"] == "interrupted"


@pytest.mark.slow
def test_a_cut_link_ends_in_an_error_within_the_time_that_was_said(hosts, tmp_path):
    deadline = f"global_cfg.link_seconds={LINK_SECONDS}"
    run = Cluster(hosts, tmp_path / "run", DQN, "actor_cfg.num=2", deadline, ENDLESS)
    with run.running() as process:
        run.learns(process)
        hosts[1].cut()
        cut_at = time.monotonic()
        assert process.wait(timeout=120) == 1
    took = time.monotonic() - cut_at
    assert LINK_SECONDS <= took < LINK_SECONDS + 20
    error = run.summary["error"]
    assert "host1" in error and f"did not answer for {LINK_SECONDS} s" in error
    assert not run.ranks(0)
    eventually(lambda: not run.ranks(1), 2 * LINK_SECONDS + 10, "the end of the ranks far away")


@pytest.mark.slow
def test_rank_0_on_another_host_ends_in_order_too(hosts, tmp_path):
    run = Cluster(hosts, tmp_path / "run", DQN, ENDLESS)
    file = hosts.hostfile(run.slots)
    file.write_text("".join(reversed(file.read_text().splitlines(keepends=True))))
    with run.running() as process:
        run.learns(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 143
    assert run.summary["status"] == "interrupted"
    assert list(run.folder.glob("checkpoints/*-step-*"))
    eventually(lambda: not run.ranks(0) and not run.ranks(1), what="the end of all ranks")


def test_a_host_that_cannot_be_reached_is_named_once(hosts, tmp_path):
    run = Cluster(hosts, tmp_path / "run", PPO)
    file = hosts.hostfile(run.slots)
    file.write_text(file.read_text().replace(hosts[1].address, "10.231.7.200"))
    with run.running() as process:
        assert process.wait(timeout=120) == 2
    assert run.err.read_text().count("10.231.7.200 cannot be reached") == 1
    assert "Traceback" not in run.err.read_text() and not run.folder.exists()


def test_the_table_says_who_is_where(hosts, tmp_path):
    run = Cluster(hosts, tmp_path / "run", PPO, "actor_cfg.num=2")
    run.command.append("--dry-run")
    with run.running() as process:
        assert process.wait(timeout=120) == 0, run.err.read_text()
    lines = [line.split() for line in run.out.read_text().splitlines()]
    assert lines[0] == ["role", "rank", "host", "cores"]
    assert {line[0]: line[2] for line in lines[1:]} == {
        "launcher": "host0",
        "learner-0.0": f"host{run.host_of('learner-0.0')}",
        "buffer-0.0": f"host{run.host_of('learner-0.0')}",
        "actor-0.0": f"host{run.host_of('actor-0.0')}",
        "actor-0.1": f"host{run.host_of('actor-0.1')}",
    }
    assert not run.folder.exists()


@pytest.mark.slow
def test_an_actor_that_is_killed_on_another_host_is_replaced_there(hosts, tmp_path):
    run = Cluster(hosts, tmp_path / "run", PPO, "actor_cfg.num=2", ENDLESS, "exp.max_seconds=600")
    actor = next(home for home in ("actor-0.0", "actor-0.1") if run.host_of(home) == 1)
    log = str(tmp_path / "run" / "logs" / f"{actor}.log")
    there = lambda: [pid for pid in run.ranks(1) if logged(pid) == log]  # noqa: E731
    with run.running() as process:
        run.learns(process)
        for n in (1, 2):
            [pid] = there()
            os.kill(pid, signal.SIGKILL)
            eventually(lambda n=n: run.n_back == n, 30, "its return")
            run.learns(process, len(rows(run.folder)) + 2)
        assert len(there()) == 1
    assert (run.summary["status"], run.summary["restarts"]) == ("interrupted", 2)
