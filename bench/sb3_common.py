"""What both Stable-Baselines3 benchmarks share: the stop rule, the options and the JSON line."""

from __future__ import annotations

import argparse
import time
from collections import deque

import torch
from clock import print_result
from options import Options, count, number, positive, whole
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback


class StopAtReturn(BaseCallback):
    """Ends `learn()` once the last 100 finished episodes have a mean return of `target`."""

    def __init__(self, target: float, max_seconds: float) -> None:
        super().__init__()
        self.target, self.max_seconds = target, max_seconds
        self.returns: deque[float] = deque(maxlen=100)
        self.began = time.perf_counter()

    @property
    def solved(self) -> bool:
        """True only after a hundred episodes, however good the first ones are."""
        return len(self.returns) == 100 and sum(self.returns) / 100 >= self.target

    def _on_step(self) -> bool:
        ended = [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        self.returns.extend(ended)
        if ended and self.solved:
            return False
        return time.perf_counter() - self.began < self.max_seconds


def parser(description: str | None) -> Options:
    """Options that every system of the comparison has."""
    options = Options(description)
    options.add_argument("--seed", type=whole, default=0)
    options.add_argument("--target", type=number, default=300.0)
    options.add_argument("--threads", type=count, default=1, help="torch threads")
    options.add_argument("--max-seconds", type=positive, default=600.0)
    return options


def run(
    model: BaseAlgorithm,
    total_steps: int,
    options: argparse.Namespace,
    replay_ratio: float | None = None,
) -> None:
    """Trains to the target and prints the line that `compare.py` reads, with every option."""
    torch.set_num_threads(options.threads)
    stop = StopAtReturn(options.target, options.max_seconds)
    model.learn(total_steps, callback=stop)
    steps = model.num_timesteps
    print_result("sb3", stop.solved, stop.began, steps, options, replay_ratio=replay_ratio)
