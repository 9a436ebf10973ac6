"""Splits of cores among learners and actors, as the paper writes them: L2A8, on C16 cores."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from typing import Any

LEARNER_SECONDS = 4 / 5_700
"""Simulated: seconds that one learner core takes for a sample.

With four cores a learner then consumes 5,700 samples per second, and two of them 11,400: the limit
that the paper's Table 1 shows. That cores add up ideally is an assumption of the simulation.
"""
FUSION_INTERVAL = 3  # updates of a group from one fusion with the others to the next
STEP_SECONDS, ENVS = 0.01, 16
"""Simulated: 16 environments that take 10 ms for a step, 1,600 steps per second and actor."""


@dataclass(frozen=True)
class Split:
    """`n_learners` groups of one learner with `learner_cores` cores, and `n_actors` in all."""

    n_learners: int
    n_actors: int
    learner_cores: int = 4

    def __post_init__(self) -> None:
        if self.n_actors % self.n_learners:
            raise ValueError(f"{self}: the actors cannot be shared out evenly among the learners")

    @classmethod
    def read(cls, text: str) -> Split:
        """`L2A8`, or `L1A14x2` for learners of two cores instead of four."""
        found = re.fullmatch(r"L([1-9]\d*)A([1-9]\d*)(?:x([1-9]\d*))?", text)
        if found is None:
            raise argparse.ArgumentTypeError(f"{text!r} is no split: write L2A8 or L1A14x2")
        learners, actors, cores = found.groups()
        try:
            return cls(int(learners), int(actors), int(cores or 4))
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    def __str__(self) -> str:
        """The paper's name."""
        return f"L{self.n_learners}A{self.n_actors}"

    @property
    def n_cores(self) -> int:
        """Cores of learners and actors; buffers ride with learners, and the reducer is apart."""
        return self.n_learners * self.learner_cores + self.n_actors

    def settings(self, is_real: bool) -> dict[str, Any]:
        """Keys of the configuration for this split, with slept costs unless `is_real`."""
        keys = {
            "global_cfg.group_num": self.n_learners,
            "actor_cfg.num": self.n_actors // self.n_learners,
        }
        if self.n_learners > 1:
            keys["learner_cfg.send_root_interval"] = FUSION_INTERVAL
        if is_real:
            return keys | {"learner_cfg.cores": self.learner_cores}
        return keys | {
            "environment.kwargs": f"dict(step_seconds={STEP_SECONDS})",
            "actor_cfg.envs": ENVS,
            "hyp.sample_seconds": LEARNER_SECONDS / self.learner_cores,
        }
