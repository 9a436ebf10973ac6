"""The comparison itself: from pairs of runs with the same seeds to a verdict. Pure."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from tianji.core import stats
from tianji.core.wording import count_of
from tianji.tools.verify import run_figures as measures
from tianji.tools.verify.run_figures import Distance, Training

RATIO_TOLERANCE = 0.03  # of its target, by which a measured replay ratio may be off

Pair = tuple[Training, Training]  # serial, distributed


class MarginVerdict(enum.StrEnum):
    """What an interval says about a margin."""

    EQUIVALENT = "equivalent"  # the whole interval lies within the margin
    WORSE = "worse"  # the whole interval lies beyond the margin, on the bad side
    BETTER = "better"  # the same on the good side
    CANNOT_TELL = "cannot tell"  # it lies on both sides of a margin


def judge(low: float, high: float, margin: float) -> MarginVerdict:
    """Of the interval of a difference, of which more is better."""
    if -margin <= low and high <= margin:
        return MarginVerdict.EQUIVALENT
    if high < -margin:
        return MarginVerdict.WORSE
    return MarginVerdict.BETTER if low > margin else MarginVerdict.CANNOT_TELL


@dataclass(frozen=True)
class Comparison:
    """One number of every run, serial beside distributed, in the order of the seeds."""

    name: str
    serial: tuple[float, ...]
    distributed: tuple[float, ...]
    margin: float  # in the unit of the number
    less_is_better: bool = False
    decides: bool = True  # whether the verdict about the whole depends on it
    note: str = ""

    @cached_property
    def interval(self) -> tuple[float, float, float]:
        """IQM of the distributed runs less that of the serial ones: difference, low, high."""
        return stats.paired(self.serial, self.distributed)

    @property
    def iqms(self) -> tuple[float, float]:
        """Of the serial runs and of the distributed ones."""
        return stats.iqm(self.serial), stats.iqm(self.distributed)

    @property
    def verdict(self) -> MarginVerdict:
        """About the distributed runs."""
        _, low, high = self.interval
        if self.less_is_better:
            low, high = -high, -low
        return judge(low, high, self.margin)

    @property
    def seeds_wanted(self) -> int | None:
        """Seeds that would probably tell, where these do not; None if nobody could say.

        An interval shrinks with the root of the number of seeds.
        """
        difference, low, high = self.interval
        room = abs(self.margin - abs(difference))
        half = (high - low) / 2
        if not room or not math.isfinite(half):
            return None
        return math.ceil(len(self.serial) * (half / room) ** 2)


@dataclass(frozen=True)
class SampleAges:
    """How old the samples were that both kinds of training learned from, of all seeds together."""

    name: str
    unit: str
    serial: list[tuple[int, int]]
    distributed: list[tuple[int, int]]
    distance: Distance
    among_serial: Distance | None  # between every second serial run and the others


@dataclass(frozen=True)
class Equivalence:
    """All that was compared."""

    comparisons: tuple[Comparison, ...]
    samples: tuple[SampleAges, ...]
    ratio_target: float
    ratio_error: float  # largest of any run, as a share of the target
    n_pairs: int

    @property
    def ratio_is_held(self) -> bool:
        """Whether every run was within 3 % of its replay ratio."""
        return self.ratio_error <= RATIO_TOLERANCE

    @property
    def verdict(self) -> MarginVerdict:
        """The worst of what decides; a doubt is worse than equivalence."""
        found = [each.verdict for each in self.comparisons if each.decides]
        for verdict in (MarginVerdict.WORSE, MarginVerdict.CANNOT_TELL, MarginVerdict.BETTER):
            if verdict in found:
                return verdict
        return MarginVerdict.EQUIVALENT if found else MarginVerdict.CANNOT_TELL

    @property
    def exit_status(self) -> int:
        """0 if relaxing the dependencies does not hurt, 1 if it does or nobody can tell."""
        harmless = self.verdict in (MarginVerdict.EQUIVALENT, MarginVerdict.BETTER)
        return 0 if harmless and self.ratio_is_held else 1


def compare(
    pairs: Sequence[Pair],
    steps: int,
    target: float | None,
    ratio_target: float,
    margin: float,
    steps_margin: float,
) -> Equivalence:
    """Serial against distributed runs of the same seeds, after the same environment steps.

    `margin` is a share of what serial training has gained in return, `steps_margin` one of the
    steps that it took to the target.
    """
    comparisons = _returns(pairs, steps, margin)
    if target is not None:
        comparisons += _to_target(pairs, target, steps, steps_margin)
    each = [training for pair in pairs for training in pair]
    errors = [
        math.inf if training.ratio is None else abs(training.ratio / ratio_target - 1)
        for training in each
    ]
    samples = (
        _samples(pairs, "staleness", "updates", lambda training: training.staleness),
        _samples(pairs, "age", "steps", lambda training: training.age),
    )
    return Equivalence(
        tuple(comparisons), samples, ratio_target, max(errors, default=0.0), len(pairs)
    )


def _returns(pairs: Sequence[Pair], steps: int, margin: float) -> list[Comparison]:
    found = [
        (one, two, gained)
        for serial, distributed in pairs
        if (one := measures.return_after(serial.episodes, steps)) is not None
        and (two := measures.return_after(distributed.episodes, steps)) is not None
        and (gained := measures.gain(serial.episodes, steps)) is not None
    ]
    if not found:
        return []
    serial, distributed, gains = zip(*found, strict=True)
    missing = len(pairs) - len(found)
    note = f"{count_of(missing, 'pair')} without a finished episode left out" if missing else ""
    room = margin * abs(stats.iqm(gains))
    return [Comparison("return", serial, distributed, room, note=note)]


def _to_target(pairs: Sequence[Pair], target: float, steps: int, margin: float) -> list[Comparison]:
    """A run that did not get there counts with all the steps and updates that it made."""
    arms = [
        [(training, measures.reached(training.episodes, target, steps)) for training in arm]
        for arm in zip(*pairs, strict=True)
    ]
    there = [sum(at is not None for _, at in arm) for arm in arms]
    if not any(there):
        return []
    note = ""
    if sum(there) < 2 * len(pairs):
        note = f"reached by {there[0]} serial and {there[1]} distributed runs of {len(pairs)}"
    made = [[steps if at is None else at.steps for _, at in arm] for arm in arms]
    updates = [[run.updates if at is None else at.updates for run, at in arm] for arm in arms]
    said = []
    for name, (serial, distributed) in (("steps", made), ("updates", updates)):
        room = margin * stats.iqm(serial)
        said.append(
            Comparison(
                f"{name} to {target:g}",
                tuple(serial),
                tuple(distributed),
                room,
                less_is_better=True,
                decides=name == "steps",  # updates follow from them by the replay ratio
                note=note,
            )
        )
    return said


def _samples(
    pairs: Sequence[Pair], name: str, unit: str, rows_of: Callable[[Training], measures.Rows]
) -> SampleAges:
    serial = [rows_of(one) for one, _ in pairs]
    both = measures.pooled(serial), measures.pooled(rows_of(two) for _, two in pairs)
    among = None
    if len(serial) > 1:
        among = measures.distance(measures.pooled(serial[::2]), measures.pooled(serial[1::2]))
    return SampleAges(name, unit, *both, measures.distance(*both), among)
