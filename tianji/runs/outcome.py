"""What a run did, for whoever started it from Python."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tianji.core.status import Status

if TYPE_CHECKING:
    from tianji.runs.trained import Trained


@dataclass(frozen=True, repr=False)
class Report:
    """What a run did: `tianji.train` returns it, and a notebook shows it in a few lines."""

    folder: Path
    summary: dict[str, Any]  # what summary.json holds
    exit_status: int  # 0: it did what it was asked to

    @property
    def status(self) -> Status:
        """How it ended: solved, finished, stopped, interrupted or failed."""
        return Status(self.summary["status"])

    @property
    def solved(self) -> bool:
        """Whether the mean return reached its target."""
        return self.status is Status.SOLVED

    @property
    def error(self) -> str | None:
        """Why a failed run failed."""
        error = self.summary["error"]
        return None if error is None else str(error)

    @property
    def mean_return(self) -> float | None:
        """Mean return of the last 100 episodes; None if none ended."""
        mean = self.summary["mean_return_100"]
        return None if mean is None else float(mean)

    @property
    def win_ratio(self) -> float | None:
        """Share of the last 100 episodes that were won; None where nobody can win."""
        won = self.summary["win_ratio_100"]
        return None if won is None else float(won)

    @property
    def final_time_seconds(self) -> float | None:
        """From the moment all roles were ready to the target; None if it was not reached."""
        seconds = self.summary["final_time_seconds"]
        return None if seconds is None else float(seconds)

    def policy(self) -> Trained:
        """The policy that the run ended with: `report.policy().act(observation)`."""
        from tianji.runs import trained

        return trained.load(self.folder, trust=True)  # it was imported to train

    def metrics(self) -> list[dict[str, Any]]:
        """The rows of `metrics.jsonl`, about one for each second; docs/metrics.md explains them."""
        from tianji.observe.sinks import read_rows

        return read_rows(self.folder)

    def __str__(self) -> str:
        """What happened, in a few plain lines."""
        from tianji.observe.summary import describe

        return describe(self.summary, self.folder)

    def __repr__(self) -> str:
        """The same lines: they are what a notebook shows."""
        return str(self)
