"""A task and a learner whose costs are sleeps: simulated cores, of which there are enough."""

import time

from echo import Echo

from tianji.algorithms.dqn import DQN


class Slept(Echo):
    """A step takes as long as it is told."""

    def init(self, n=4, seconds=0.02):
        super().init(n)
        self.seconds = seconds

    def step(self, action):
        time.sleep(self.seconds)
        return super().step(action)


class OneCoreDQN(DQN):
    """An update takes 20 ms."""

    SECONDS = 0.02

    def updates(self, batch):
        time.sleep(self.SECONDS)
        return super().updates(batch)


class TwoCoreDQN(OneCoreDQN):
    """The same with one more core."""

    SECONDS = 0.01
