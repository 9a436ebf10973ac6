"""Whoever reads standard output may go away: files are written, and nothing is complained about."""

import os
import subprocess
import sys

import pytest
from commands import ROOT
from made_runs import make
from recordings import folder_of_a_run, made

pytestmark = pytest.mark.process


def unread(folder, *words, unbuffered):
    """Runs a verb whose output nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            [sys.executable, "-m", "tianji", *words],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered},
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    finally:
        os.close(writer)


@pytest.mark.parametrize("unbuffered", ["", "1"])  # the first print fails, or the last flush
@pytest.mark.parametrize(
    "words, file",
    [
        (("trace", "traced"), "traced/trace.json"),
        (("report", "a", "b"), "report.html"),
        (("--version",), None),
    ],
)
def test_a_command_ends_well_and_leaves_its_file(tmp_path, words, file, unbuffered):
    make(tmp_path / "a", 2)
    make(tmp_path / "b", 3)
    (tmp_path / "traced").mkdir()
    made(folder_of_a_run(tmp_path / "traced"))
    done = unread(tmp_path, *words, unbuffered=unbuffered)
    assert (done.returncode, done.stderr) == (0, "")
    assert file is None or (tmp_path / file).stat().st_size > 0


def test_a_mistake_is_a_mistake_though_nobody_reads(tmp_path):
    done = unread(tmp_path, "report", "nowhere", unbuffered="")
    assert done.returncode == 2
    assert "nowhere does not exist" in done.stderr
