"""A task whose costs are sleeps and may change while it runs: simulated, and the same anywhere."""

import time
from pathlib import Path

from echo import Echo

from tianji.algorithms.dqn import DQN
from tianji.stores.replay import Replay
from tianji.transports.shm import ShmTransport


class Drifting(Echo):
    """A step takes as many seconds as stand in a file, which may be written anew at any time."""

    def init(self, n=4, pace="pace"):
        super().init(n)
        self.pace, self.looked_at, self.seconds = Path(pace), 0.0, 0.0

    def step(self, action):
        if time.monotonic() > self.looked_at + 0.1:
            self.looked_at, self.seconds = time.monotonic(), float(self.pace.read_text())
        time.sleep(self.seconds)
        return super().step(action)


class SlowDQN(DQN):
    """An update takes 8 ms at least."""

    def updates(self, batch):
        time.sleep(0.008)
        return super().updates(batch)


class SlowReplay(Replay):
    """A batch takes 6 ms at least."""

    def build(self, *arguments):
        store = super().build(*arguments)
        draw = store.draw

        def slowly(out):
            time.sleep(0.006)
            draw(out)

        store.draw = slowly
        return store


class DrawnOutDQN(SlowDQN):
    """An update takes 8 ms and its batch 6: 14 in turns, 8 where both go on at once."""

    @classmethod
    def sampling(cls, task):
        return SlowReplay(**vars(super().sampling(task)))


class SlowLink(ShmTransport):
    """Twenty trajectories a second and actor, however fast both ends are."""

    def inbox(self, name):
        inbox = super().inbox(name)
        return Slow(inbox) if name.startswith("trajectories") else inbox


class Slow:
    """An inbox whose next message takes its time."""

    def __init__(self, inbox):
        self._inbox, self._due = inbox, 0.0
        self.close, self.free = inbox.close, inbox.free

    @property
    def waiting(self):
        return self._inbox.waiting

    @property
    def closed(self):
        return self._inbox.closed

    def take(self):
        if time.monotonic() < self._due or (message := self._inbox.take()) is None:
            return None
        self._due = time.monotonic() + 0.05
        return message
