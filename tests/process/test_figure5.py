"""`python bench/figure5.py` as a user would start it, with very small counts."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from benches import BENCH
from commands import alive, eventually
from transmission import ranks
from transmission.experiment import Experiment, Use
from transmission.ours import shm
from transmission.ranks import mpi

from tianji.core.errors import TianJiError

pytestmark = pytest.mark.process
FIGURE5 = [sys.executable, str(BENCH / "figure5.py")]


def bench(folder, env, *options, timeout=100):
    command = [*FIGURE5, "--out", str(folder)]
    return subprocess.run(
        [*command, *options],
        env=env | {"COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@pytest.mark.slow
def test_a_small_run_prints_its_tables_and_writes_its_files(tmp_path, child_env):
    options = ["--quick", "--parts", "ab", "--transports", "local", "shm", "--peers", "queue"]
    few = ["--samples", "24", "--sizes", "1", "64", "--actors", "1", "2"]
    done = bench(tmp_path / "out", child_env, *options, *few)
    assert done.returncode == 0, done.stderr
    said = json.loads((tmp_path / "out" / "transmission.json").read_text())
    rows = said["rows"]
    assert {row["carrier"] for row in rows if row["part"] == "a"} == {"local", "shm", "queue"}
    assert not any(row["n_wrong"] for row in rows)
    curve = [row for row in rows if row["part"] == "b"]
    assert {row["n_actors"] for row in curve} == {1, 2}
    assert all(row["predicted_seconds"] > 0 and row["sample_seconds"] > 0 for row in curve)
    assert (tmp_path / "out" / "transmission.svg").read_text().rstrip().endswith("</svg>")


def test_many_actors_over_shared_memory_lose_nothing():
    found = shm(Experiment(1000, 400, n_actors=3, sample_seconds=0.0, use=Use.STORE, depth=2))
    assert found.n_wrong == 0
    assert found.receive_seconds > 0 and found.send_seconds > 0


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_an_interrupted_run_leaves_no_process_behind(tmp_path, child_env, number, status):
    command = [*FIGURE5, "--parts", "b"]
    command += ["--out", str(tmp_path), "--actors", "3", "--transports", "shm", "--peers"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=child_env, stdout=quiet, stderr=quiet) as process:
        eventually(lambda: len(below(process.pid)) == 3, what="three actors")
        actors = below(process.pid)
        process.send_signal(number)
        assert process.wait(120) == status
    eventually(lambda: not any(alive(pid) for pid in actors), what="their end")


def test_what_was_measured_before_ctrl_c_is_printed_and_written(tmp_path, child_env):
    """Part b would take minutes."""
    command = [*FIGURE5, "--quick"]
    command += ["--parts", "ab", "--transports", "shm", "--peers", "--sizes", "1"]
    command += ["--actors", "1", "--samples", "1000000", "--out", str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=child_env, **pipes) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("1/1  b: shm"):
                break
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "figures asked for" in out
    said = json.loads((tmp_path / "transmission.json").read_text())
    assert said["done"] == ["a"]
    assert [row["part"] for row in said["rows"]] == ["a", "a"]  # views and store
    assert len((tmp_path / "transmission.csv").read_text().splitlines()) == 1 + len(said["rows"])


def below(pid):
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text().split()] if path.exists() else []


@pytest.mark.skipif(ranks.missing() is not None, reason=str(ranks.missing()))
def test_ranks_of_mpi_run_the_same_experiment():
    found = mpi(Experiment(1000, 100, n_actors=2, sample_seconds=0.0, depth=2))
    assert found.n_wrong == 0 and found.receive_seconds > 0


@pytest.mark.skipif(ranks.missing() is not None, reason=str(ranks.missing()))
def test_ranks_go_with_their_mpirun(monkeypatch):
    """A sample takes an hour: nobody would ever hear from these ranks."""
    monkeypatch.setattr(ranks, "MOST_SECONDS", 4.0)
    with pytest.raises(TianJiError, match="no answer within 4 s"):
        mpi(Experiment(1001, 100, n_actors=1, sample_seconds=3600.0))
    eventually(lambda: not running('"message_bytes": 1001'), what="the end of the ranks")


@pytest.mark.skipif(ranks.missing() is not None, reason=str(ranks.missing()))
def test_an_actor_that_is_killed_ends_the_experiment_long_before_its_time_is_over():
    """A sample takes an hour here too."""
    failed = []

    def measure():
        with pytest.raises(TianJiError, match="rank 1 of the experiment was lost"):
            mpi(Experiment(1002, 100, n_actors=1, sample_seconds=3600.0))
        failed.append(True)

    thread = threading.Thread(target=measure)
    thread.start()
    [actor] = eventually(lambda: sharing(1, '"message_bytes": 1002'), what="the actor")
    os.kill(actor, signal.SIGKILL)
    thread.join(20)
    assert failed and not running('"message_bytes": 1002')


def sharing(rank, words):
    """The process of a rank, once it has channels."""
    found, told = [], f"OMPI_COMM_WORLD_RANK={rank}".encode()
    for path in running(words):
        with contextlib.suppress(OSError):
            is_rank = told in (path.parent / "environ").read_bytes().split(b"\0")
            if is_rank and "memfd:" in (path.parent / "maps").read_text():
                found.append(int(path.parent.name))
    return found


def running(words):
    """The processes whose command line has these words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if words in path.read_text():
                found.append(path)
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_figures_at_small_scale(tmp_path, child_env):
    """Far below what is asked, because cores may be few: what holds on any quiet machine."""
    done = bench(tmp_path, child_env, "--quick", "--parts", "abcd", timeout=500)
    assert done.returncode == 0, done.stderr
    said = json.loads((tmp_path / "transmission.json").read_text())
    if (busy := said["machine"]["foreign_load"]) > 0.2:
        pytest.skip(f"others used {busy:.0%} of this machine: its figures say nothing")
    large = [
        row
        for row in said["rows"]
        if (row["part"], row["carrier"], row["use"]) == ("a", "shm", "store")
        and row["message_bytes"] >= 64 << 10
    ]
    assert large and all(row["of_limit"] > 0.5 for row in large)
    errors = [abs(row["error_percent"]) for row in said["rows"] if row["part"] == "b"]
    assert sorted(errors)[len(errors) // 2] < 15
    crossing = [row for row in said["rows"] if row["part"] == "d" and row["carrier"] == "mpi"]
    assert all(row["of_limit"] > 0.8 for row in crossing)
    assert all(row["wire_bytes"] >= row["wire_payload_bytes"] for row in crossing)
    assert bool(crossing) is (os.geteuid() == 0 and "part d" not in said["skipped"])
