"""Runs of the command line as a user would start them, and what they leave behind."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TASKS = Path(__file__).parent / "tasks"
PATIENCE_SECONDS = 120.0  # at least: a busy machine is not a failure


@dataclass
class Finished:
    """A command that has ended."""

    status: int
    out: str
    err: str
    folder: Path

    @property
    def summary(self):
        return json.loads((self.folder / "summary.json").read_text())


def start(config, folder, *options, text=True, path=ROOT, **more):
    """Starts `tianji train` in the background; `more` is for the process."""
    command = [sys.executable, "-m", "tianji", "train", str(config), "--run-dir", str(folder)]
    return subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=text,
        cwd=next(parent for parent in folder.parents if parent.is_dir()),
        env=os.environ | {"PYTHONPATH": str(path), "OMP_NUM_THREADS": "1"},
        **more,
    )


NO_MEAN = """
from tianji.roles.reducer import Reducer


def fail(self):
    raise ValueError("no mean today")


Reducer._fuse = fail
"""


def without_a_mean(folder):
    """A PYTHONPATH with which every reducer raises an exception at its first fusion."""
    (folder / "sitecustomize.py").write_text(NO_MEAN)  # which the interpreter loads as it begins
    return f"{folder}{os.pathsep}{ROOT}"


def end(process):
    """Kills what `start` started, if it still runs, and closes its pipes."""
    process.kill()
    for pipe in (process.stdout, process.stderr):
        pipe.close()
    process.wait()


def train(config, folder, *options, timeout=250):
    """Runs `tianji train` to its end."""
    process = start(config, folder, *options)
    out, err = process.communicate(timeout=timeout)
    return Finished(process.returncode, out, err, folder)


def tianji(*words, cwd=None, timeout=250):
    """Runs any verb to its end."""
    return subprocess.run(
        [sys.executable, "-m", "tianji", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=timeout,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )


def eventually(condition, seconds=PATIENCE_SECONDS, what="it"):
    """Waits until `condition()` is true and returns what it gave."""
    seconds = max(seconds, PATIENCE_SECONDS)
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.005)
    return result


def children(pid):
    """The child processes of a process, by their role's name."""
    found = {}
    try:
        pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return found
    for child in map(int, pids):
        try:
            words = Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if "tianji.engines.worker" in words:
            found[words[words.index("tianji.engines.worker") + 1]] = child
    return found


def alive(pid):
    """Whether a process runs; one that waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def begun(pid):
    """Whether a command has got as far as our own code, which wants no KeyboardInterrupt."""
    words = dict(line.split(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    ignored, caught = (int(words[name], 16) for name in ("SigIgn", "SigCgt"))
    mask = {number: 1 << (number - 1) for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM)}
    python = ignored & mask[signal.SIGPIPE]  # as it begins it ignores this and catches Ctrl-C
    return python and (caught & mask[signal.SIGTERM] or not caught & mask[signal.SIGINT])


def rows(folder):
    """The rows of metrics written so far."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def training(process, folder):
    """Waits until a run has begun to learn; returns its children."""
    eventually(lambda: rows(folder) or process.poll() is not None, 60, "the first update")
    assert process.poll() is None, process.communicate()
    return children(process.pid)
