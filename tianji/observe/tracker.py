"""A process that hands the rows of a run to Weights & Biases or trackio.

`python -m tianji.observe.tracker wandb` reads lines of JSON: first what the run is, then rows, at
last the summary. Such a library talks to a network, asks for passwords, prints and catches signals;
here it can do all that without a launcher, or a terminal, that would feel it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, Protocol

PROJECT = "tianji"


class Tracker(Protocol):
    """A run as such a library sees it."""

    def log(self, values: dict[str, float], step: int) -> None:
        """Adds one row."""

    def finish(self, summary: dict[str, Any] | None) -> None:
        """Ends the run; without a summary the launcher has died."""


class WeightsAndBiases:
    """A run in Weights & Biases; its environment variables keep their meaning."""

    def __init__(self, about: dict[str, Any]) -> None:
        wandb = importlib.import_module("wandb")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            name=os.environ.get("WANDB_NAME") or about["name"],
            id=about["id"],
            dir=about["folder"],
            config=about["config"],
            resume="allow",
            settings=wandb.Settings(console="off"),
        )
        self._run.define_metric("*", step_metric="env_steps")

    def log(self, values: dict[str, float], step: int) -> None:
        """Adds one row; the x axis is `env_steps`, which may go back when a run is resumed."""
        self._run.log(values | {"env_steps": step})

    def finish(self, summary: dict[str, Any] | None) -> None:
        """Writes the plain values of the summary, and waits until everything is sent."""
        plain = {k: v for k, v in (summary or {}).items() if isinstance(v, str | int | float)}
        self._run.summary.update(plain)
        self._run.finish(exit_code=1 if summary is None or summary["status"] == "failed" else 0)


class Trackio:
    """A run in trackio, which keeps it on this machine unless its own variables say otherwise."""

    def __init__(self, about: dict[str, Any]) -> None:
        trackio = importlib.import_module("trackio")
        self._run = trackio.init(
            project=os.environ.get("TRACKIO_PROJECT") or PROJECT,
            name=about["id"],
            config=about["config"],
            resume="allow",
            embed=False,
        )

    def log(self, values: dict[str, float], step: int) -> None:
        """Adds one row."""
        self._run.log(values, step=step)

    def finish(self, summary: dict[str, Any] | None) -> None:
        """Waits until everything is stored."""
        self._run.finish()


def messages(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """What the lines say; half a line is the last word of a launcher that died."""
    for line in lines:
        if not line.endswith("\n"):
            return
        yield json.loads(line)


def track(tracker: Tracker, received: Iterator[dict[str, Any]]) -> None:
    """Hands everything to `tracker` until the summary comes, or nothing more."""
    summary = None
    for message in received:
        if "summary" in message:
            summary = message["summary"]
            break
        tracker.log(message["values"], message["step"])
    tracker.finish(summary)


def main(library: str) -> None:
    """Tracks the run that standard input tells of."""
    received = messages(sys.stdin)
    about = next(received)
    track(WeightsAndBiases(about) if library == "wandb" else Trackio(about), received)


if __name__ == "__main__":
    main(sys.argv[1])
