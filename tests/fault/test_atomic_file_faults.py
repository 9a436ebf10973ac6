"""A process that is killed while it writes a file, and a disk that takes only some of it."""

import json
import signal
import subprocess
import sys

import pytest

from tianji.core import atomic_file

pytestmark = [pytest.mark.fault, pytest.mark.process]

KILLED = """
import os, signal, sys
from pathlib import Path
from tianji.core import atomic_file

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def hear(event, arguments):
    if event == sys.argv[2] and ".part" in str(arguments[0]):
        die()

sys.addaudithook(hear)
with atomic_file.writing(Path(sys.argv[1])) as file:
    file.write(b"after" * 10_000)
    file.flush()
    if sys.argv[2] == "written":
        die()
"""

LIMITED = """
import json, os, resource, sys
from pathlib import Path
from tianji.core import atomic_file

resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
try:
    atomic_file.write(Path(sys.argv[1]), "after" * 10_000)
except OSError as error:
    print(json.dumps([error.strerror, error.filename]))
"""


@pytest.mark.parametrize("before", ["open", "written", "os.rename"])
def test_a_kill_leaves_the_old_file_and_the_next_writer_succeeds(tmp_path, child_env, before):
    path = tmp_path / "file"
    path.write_text("before")
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), before], env=child_env)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "before"
    left = [each for each in tmp_path.iterdir() if each != path]
    assert len(left) == (before != "open")
    assert all(atomic_file.LEFT_OVER.fullmatch(each.name) for each in left)
    atomic_file.write(path, "after")
    assert path.read_text() == "after"


def test_a_file_that_the_disk_takes_only_half_of_is_not_there_at_all(tmp_path, child_env):
    path = tmp_path / "file"
    words = [sys.executable, "-c", LIMITED, str(path)]
    done = subprocess.run(words, env=child_env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["File too large", str(path)]
    assert list(tmp_path.iterdir()) == []
