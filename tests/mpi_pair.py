"""Two ranks of a real MPI job, and channel ends in them that look as if they were here."""

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tianji.core.channel import Message
from tianji.core.errors import TianJiError
from tianji.machine.mpirun import SETTINGS, command, find

MISSING = None
try:
    find()
except TianJiError as error:
    MISSING = str(error)


def mpirun(n, *words):
    """The command line of a job on this machine, as the command itself would start it."""
    return command(n, [str(word) for word in words], environment={})


class MpiPair:
    """Starts the ranks once; `connect` makes new channels between them for each test."""

    def __init__(self, environment):
        self._folder = tempfile.TemporaryDirectory()
        path = str(Path(self._folder.name) / "strings")
        with socket.socket(socket.AF_UNIX) as here:
            here.bind(path)
            here.listen(2)
            here.settimeout(60)
            script = Path(__file__).with_name("mpi_pair_rank.py")
            words = mpirun(2, sys.executable, script, path)
            self._job = subprocess.Popen(words, env={**SETTINGS, **environment})
            self._streams = {}
            for _ in range(2):
                connection, _ = here.accept()
                stream = connection.makefile("rw")
                connection.close()  # the stream keeps it open
                self._streams[json.loads(stream.readline())] = stream

    def tell(self, home, *command):
        self.start(home, *command)
        return self.answer(home)

    def start(self, home, *command):
        self._streams[home].write(json.dumps(command) + "\n")
        self._streams[home].flush()

    def answer(self, home):
        return json.loads(self._streams[home].readline())

    def both(self, *command):
        for home in self._streams:
            self.start(home, *command)
        return [self.answer(home) for home in self._streams]

    def settle(self):
        """Waits until everything that was sent has arrived, both ways."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            (moved, *counts), (other_moved, *others) = self.both("carry")
            if counts == others[::-1] and not moved and not other_moved:
                return
        raise AssertionError("the wire does not come to rest")

    @contextlib.contextmanager
    def connect(self, *specs):
        self.both("connect", [_plain(spec) for spec in specs])
        yield Side(self, "left"), Side(self, "right")
        self.both("disconnect")

    def close(self):
        for stream in self._streams.values():
            stream.close()
        self._job.wait(timeout=120)
        self._folder.cleanup()


def _plain(spec):
    schema = spec.schema.to_json()
    who = list(spec.targets), list(spec.readers)
    return [spec.name, *who, schema, spec.delivery.value, spec.depth]


class Side:
    """The transport of one rank."""

    def __init__(self, pair, home):
        self._pair, self._home = pair, home

    def outbox(self, name):
        return FarEnd(self._pair, self._home, self._pair.tell(self._home, "outbox", name))

    def inbox(self, name):
        return FarEnd(self._pair, self._home, self._pair.tell(self._home, "inbox", name))

    def arm(self):
        self._pair.tell(self._home, "arm")

    def disarm(self):
        self._pair.tell(self._home, "disarm")

    def wait(self, seconds):
        self._pair.tell(self._home, "wait", seconds)


class FarEnd:
    """An end of a channel in another process; everything has arrived before and after each use."""

    def __init__(self, pair, home, number):
        self._pair, self._home, self._number = pair, home, number
        self._slot = None

    def _do(self, command, *arguments):
        self._pair.settle()
        answer = self._pair.tell(self._home, command, self._number, *arguments)
        self._pair.settle()
        return answer

    def push(self, arrays, version):
        return self._do("push", int(arrays["number"]), arrays["data"].tolist(), version)

    def slot(self):
        if not self._do("slot"):
            return None
        if self._slot is None:
            self._slot = {"number": np.zeros((), np.int64), "data": np.zeros((3, 5), np.float32)}
        return self._slot

    def commit(self, version):
        arrays, self._slot = self._slot, None
        self._do("commit", int(arrays["number"]), arrays["data"].tolist(), version)

    def take(self):
        taken = self._do("take")
        if taken is None:
            return None
        number, data, version, sequence = taken
        arrays = {"number": np.array(number), "data": np.array(data, np.float32)}
        return Message(arrays, version, sequence)

    def free(self):
        self._do("free")

    def close(self):
        self._do("close")

    def __getattr__(self, name):
        return self._do("get", name)
