"""TianJi: distributed reinforcement-learning training in which no role waits for another."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tianji.launch import Report
    from tianji.trained import Trained

__version__ = "0.1.0"


def train(
    config: str | Path,
    *overrides: str,
    engine: str | None = None,
    run_dir: str | Path | None = None,
    quiet: bool = True,
) -> Report:
    """Trains what a configuration file describes, as `tianji train` does; prints no summary.

    `overrides` are as after `--set`: `tianji.train("my_job.py", "hyp.lr=0.001", "exp.seed=2")`.
    """
    from pathlib import Path

    from tianji import launch
    from tianji.config import load as load_config

    folder = None if run_dir is None else Path(run_dir)
    return launch.train(load_config(config, overrides), engine, folder, quiet)


def load(run: str | Path) -> Trained:
    """The policy that a run ended with: `tianji.load("runs/...").act(observation)`."""
    from tianji import trained

    return trained.load(run)


__all__ = ["__version__", "load", "train"]
