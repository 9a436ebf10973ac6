"""`tianji report` and `tianji train --dashboard`, started as a user would."""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request

import pytest
from commands import ROOT, TASKS, end, eventually, start
from made_runs import make

pytestmark = pytest.mark.process


def report(folder, *arguments):
    """Runs `tianji report` in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "tianji", "report", *map(str, arguments)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_report_is_written_and_its_figures_are_printed(tmp_path):
    make(tmp_path / "a", 20, seed=1)
    make(tmp_path / "b", 25, seed=2)
    done = report(tmp_path, "a", "b")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "report.html"
    assert re.search(r"^a +1 +solved +20\.0 s", done.stdout, re.M)
    assert re.search(r"^toy_dqn +2 +22\.5 s", done.stdout, re.M)
    assert "</html>" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_run_that_does_not_exist_is_the_users_mistake(tmp_path):
    make(tmp_path / "runs" / "a", 2)
    done = report(tmp_path, "runs/b")
    assert done.returncode == 2
    assert done.stderr == "tianji: runs/b does not exist: name one of runs/a\n"


def test_a_run_is_followed_from_its_start_to_its_end(tmp_path):
    folder = tmp_path / "run"
    process = start(TASKS / "echo_dqn.py", folder, "--dashboard", "0", "--max-seconds", "60")
    try:
        said = process.stderr.readline()
        url = re.search(r"http://127\.0\.0\.1:\d+/", said).group()

        def data():
            with urllib.request.urlopen(f"{url}data.json", timeout=10) as answer:
                return json.load(answer)["runs"][0]

        def has_ended():
            time.sleep(0.2)  # a page asks less often still
            return data()["status"] != "running"

        assert data()["status"] == "running"
        eventually(has_ended, 60, "the end on the live page")
        process.communicate(timeout=120)
        assert process.returncode == 0
        with pytest.raises(OSError):
            data()
    finally:
        end(process)
