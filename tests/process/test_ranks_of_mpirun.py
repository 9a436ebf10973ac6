"""mpirun under care: rank 0's status is the one that counts, and nobody is left behind."""

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from commands import ROOT, alive, end, eventually

from tianji.machine import mpirun_process

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(find_spec("mpi4py") is None, reason="mpi4py is not installed"),
]
CHILD = Path(__file__).parent / "rank_child.py"
STARTER = """
import sys
from pathlib import Path
from tianji.machine import mpirun_process
from tianji.core.errors import TianJiError
mpirun_process.LINGER_SECONDS = 0.5
hostfile = Path(sys.argv[1]) if sys.argv[1] else None
try:
    sys.exit(mpirun_process.start(3, sys.argv[2:], hostfile))
except TianJiError as error:
    print(f"tianji: {error}", file=sys.stderr)
    sys.exit(2)
"""


@pytest.fixture
def start(tmp_path):
    """Starts three ranks; returns the process that cares for them."""
    started = []

    def go(*words, hostfile=""):
        process = subprocess.Popen(
            [sys.executable, "-c", STARTER, str(hostfile), *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        started.append(process)
        return process

    yield go
    for process in started:
        end(process)


def ranks(folder):
    """Waits until all three are there; returns their processes."""
    files = [folder / f"pid{i}" for i in range(3)]
    eventually(lambda: all(file.exists() and file.read_text() for file in files), what="ranks")
    return [int(file.read_text()) for file in files]


def gone(pids):
    return eventually(lambda: not any(map(alive, pids)), what="the end of all ranks")


def test_the_status_is_that_of_rank_0_and_what_it_says_is_passed_on(start, tmp_path):
    process = start(sys.executable, CHILD, tmp_path, "end")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 7 and err == "rank 0 is here\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal_reaches_rank_0_which_ends_in_order(start, tmp_path, number):
    process = start(sys.executable, CHILD, tmp_path, "wait")
    pids = ranks(tmp_path)
    process.send_signal(number)
    assert process.wait(timeout=120) == 128 + number
    assert (tmp_path / "over").exists() and gone(pids)


def test_ranks_that_stay_when_rank_0_has_left_are_killed_and_the_status_is_true(start, tmp_path):
    process = start(sys.executable, CHILD, tmp_path, "leave others")
    pids = ranks(tmp_path)
    assert process.wait(timeout=120) == 7 and gone(pids)


def test_a_killed_rank_0_is_a_failure_although_mpirun_says_otherwise(start, tmp_path):
    process = start(sys.executable, CHILD, tmp_path, "die")
    pids = ranks(tmp_path)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1 and "rank 0 ended without a word" in err and gone(pids)


def test_all_ranks_end_when_the_one_who_started_them_is_killed(start, tmp_path):
    process = start(sys.executable, CHILD, tmp_path, "wait")
    pids = ranks(tmp_path)
    process.kill()
    assert gone(pids)


@pytest.mark.parametrize(
    ("text", "program", "words"),
    [
        (None, "/no/such/program", "has no /no/such/program: install TianJi there"),
        ("localhost slots=2", "true", "places on all hosts: 2, ranks of this run: 3"),
        ("localhost slots=two", "true", "hosts:1: found 'localhost slots=two', want a host and"),
        ("localhost slots=1\nno-such.invalid slots=2", "true", "cannot be reached"),
    ],
)
def test_what_mpirun_cannot_start_is_one_sentence(start, tmp_path, text, program, words):
    hostfile = tmp_path / "hosts"
    hostfile.write_text(text or "")
    process = start(program, hostfile="" if text is None else hostfile)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2, err
    assert words in err and err.count("\n") == 1 and not out


def test_a_hostfile_that_is_not_there_is_named(start, tmp_path):
    process = start("true", hostfile=tmp_path / "nowhere")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2 and "nowhere" in err


def test_a_signal_before_rank_0_has_begun_ends_all(start, tmp_path):
    process = start("sh", "-c", f"echo $$ > {tmp_path}/pid$OMPI_COMM_WORLD_RANK; exec sleep 60")
    pids = ranks(tmp_path)
    process.terminate()
    assert process.wait(timeout=120) == 128 + signal.SIGTERM and gone(pids)


@pytest.mark.parametrize("left", [None, 143, 138, 130])
def test_the_signal_that_came_first_is_the_status_whatever_reached_rank_0(
    tmp_path, capfdbinary, left
):
    job = mpirun_process.MpirunJob(tmp_path, 1, False)
    job.begin(["true"], dict(os.environ))
    job.note(signal.SIGINT, None)
    if left is not None:
        (tmp_path / "status").write_text(str(left))
    assert job.watch() == 130
    job.end()
    said = b"" if left is not None else b"Interrupted before the run began.\n"
    assert capfdbinary.readouterr().err == said


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_run_that_ended_by_itself_has_its_own_status_after_a_signal(tmp_path, left):
    job = mpirun_process.MpirunJob(tmp_path, 1, False)
    job.begin(["true"], dict(os.environ))
    job.note(signal.SIGINT, None)
    (tmp_path / "status").write_text(str(left))
    assert job.watch() == left
    job.end()
