"""The doctor looks at this very machine, and no patient can take it down."""

import json
import os
import subprocess
import sys

import pytest
from commands import ROOT

from tianji.tools.doctor import echo, examine

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def doctor(tmp_path_factory):
    """What the command said here."""
    return run_doctor(tmp_path_factory.mktemp("doctor"), "--json")


def run_doctor(folder, *options, **variables):
    return subprocess.run(
        [sys.executable, "-m", "tianji", "doctor", *options],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_every_thing_is_looked_at(doctor):
    assert not doctor.stderr
    rows = {row["what"]: row for row in json.loads(doctor.stdout)}
    wanted = "Python platform cores threads memory channel clock disk GPU torch onnx"
    assert {*wanted.split(), "open files", "/dev/shm", "tianji"} <= rows.keys()
    assert rows["channel"]["verdict"] != "problem"
    assert rows["clock"]["verdict"] == "ok"
    assert all(row["advice"] for row in rows.values() if row["verdict"] != "ok")
    problems = [row for row in rows.values() if row["verdict"] == "problem"]
    assert doctor.returncode == bool(problems)


def test_a_problem_gives_status_1(tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "torch.py").write_text("raise ImportError('libcuda.so.1 is damaged')")
    done = run_doctor(tmp_path, PYTHONPATH=f"{broken}{os.pathsep}{ROOT}")
    assert done.returncode == 1
    line = next(line for line in done.stdout.splitlines() if " GPU " in line)
    assert line.startswith("problem") and "libcuda.so.1 is damaged" in line


def test_a_library_that_crashes_or_hangs_is_only_reported():
    crash = [sys.executable, "-c", "import os; os.abort()"]
    assert examine.ask(crash).error == "exit status -6"
    hang = [sys.executable, "-c", "import threading; threading.Event().wait()"]
    assert examine.ask(hang, seconds=0.2).error == "no answer within 0.2 s"
    assert not examine.ask(["no-such-command"]).found


def test_another_process_answers_over_shared_memory():
    found = echo.talk(seconds=0.1)
    assert not found.error
    assert found.messages > 10 and found.shared_clock


def test_a_process_that_cannot_start_is_told_with_its_last_words(monkeypatch, tmp_path):
    (tmp_path / "numpy.py").write_text("raise ImportError('numpy is damaged')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    assert "numpy is damaged" in echo.talk(seconds=0.1).error
