"""PPO and DQN whose updates take a given time: a stand-in for learners with cores of their own.

They learn as ever. Where `sample_seconds` is more than an update needs, the rest is slept, so that
the learner's rate is a number of the experiment and not of the machine. What is measured with it is
simulated, and has to be labelled so.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from sleepy import Pace

from tianji.algorithms.dqn import DQN, DQNHyp
from tianji.algorithms.ppo import PPO, PPOHyp
from tianji.config.binder import key
from tianji.core.algorithm import Algorithm, Task
from tianji.core.schema import Arrays

MEANING = "seconds that an update takes for each sample of its batch"


@dataclass(frozen=True)
class SlowPPOHyp(PPOHyp):
    """Those of PPO, and a cost."""

    sample_seconds: float = key(0.0, MEANING, at_least=0)


@dataclass(frozen=True)
class SlowDQNHyp(DQNHyp):
    """Those of DQN, and a cost."""

    sample_seconds: float = key(0.0, MEANING, at_least=0)


class Paced(Algorithm):
    """Updates of a given length, in front of an algorithm."""

    def __init__(self, task: Task, seed: int, device: str = "cpu") -> None:
        super().__init__(task, seed, device)
        self._pace = Pace()
        self._samples = deque[int]()  # of the batches that were staged

    def stage(self, batch: Arrays) -> Any:
        """The batch as the algorithm wants it; its size is known only here."""
        self._samples.append(batch["reward"].size)
        return super().stage(batch)

    def learn(self, batch: Any) -> dict[str, float]:
        """One update, not before its time is over."""
        self._pace.begin()
        scalars = Algorithm.learn(self, batch)
        self._pace.end(self.task.hyp.sample_seconds * self._samples.popleft())
        return scalars


class SlowPPO(Paced, PPO):
    """PPO with updates of a given length."""

    Hyp = SlowPPOHyp


class SlowDQN(Paced, DQN):
    """DQN with updates of a given length."""

    Hyp = SlowDQNHyp
