"""Rows of metrics come with progress, whatever length a run turns out to have."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tianji.core.counts import Count
from tianji.observe.watch import Progress
from tianji.runs.row_schedule import RowSchedule

LOOK_SECONDS = 0.02  # as the engines look
STARTED = 100.0


def times(
    seconds: float, updates_per_second: float, schedule: RowSchedule | None = None
) -> list[float]:
    """When rows are written in a run of such a length, in seconds of training."""
    progress = Progress({"learner-0.0": np.zeros(len(Count))}, started_at=STARTED)
    schedule, found = schedule or RowSchedule(), []
    for look in range(int(seconds / LOOK_SECONDS)):
        at = look * LOOK_SECONDS
        progress.counts["learner-0.0"][Count.VERSION] = int(at * updates_per_second)
        if schedule.due(progress, STARTED + at):
            found.append(at)
    return found


@pytest.mark.parametrize("seconds", [1.2, 1.5, 4.0, 30.0])
def test_a_short_run_has_fifty_rows(seconds: float) -> None:
    found = times(seconds, 1000.0)
    assert len(found) >= 50
    assert max(np.diff(found)) <= max(2.1 * LOOK_SECONDS, seconds / 40)


def test_a_long_run_has_one_row_a_second() -> None:
    found = times(1_000.0, 10.0)
    late = [at for at in found if at >= 100.0]
    assert np.diff(late) == pytest.approx(1.0, abs=LOOK_SECONDS * 1.01)
    assert len(found) < 1_300


def test_a_run_that_does_not_get_on_has_one_row_a_second_from_its_first_update() -> None:
    assert times(20.0, 0.0) == []
    stuck = times(5.5, 0.4)  # updates at 2.5 and 5.0 s
    assert stuck == pytest.approx([2.5, 3.5, 4.5, 5.0], abs=LOOK_SECONDS)


def test_no_row_is_asked_for_where_only_the_last_is_wanted() -> None:
    assert times(10.0, 100.0, RowSchedule(math.inf)) == []


def test_a_resumed_run_has_rows_when_there_are_rates() -> None:
    assert times(3.0, 100.0, RowSchedule(resumed=True))[0] == pytest.approx(1.0)
