"""Runs every split of the cores, and says where the planned one lies among them.

The job is measured and planned as `tianji plan` does it, for endless training. Then each split
trains for some seconds, and its rates, without start and warm-up, stand beside what was predicted
for it. Before every further round the job is measured again, because the speed of a shared machine
drifts, and a run's error is that of its own round's prediction; medians count. Asked: the planned
split lies within the range of the fastest one, and predictions within 10 %. With --most only so
many splits are run, evenly spread from the fastest to the slowest by prediction; the planned one is
always among them. With --heats every shape is run once first, and the fastest go into the rounds,
the very fastest with every number of environments.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import heats
from experiment import REAL, OutOfTime, Sheet, attempt, machine, parser, seeds_of
from figures import Panel, Series
from measures import Spread
from options import CONFIGS, cores, count, existing_file
from tables import cells, markdown, spread, values, where
from trainings import ENDLESS, Row, busy_share, summary_of

from tianji.config import load
from tianji.core.errors import TianJiError
from tianji.job.job import Job
from tianji.job.preflight import try_out
from tianji.machine.resources import usable_here
from tianji.strategy.plan import plan_file
from tianji.strategy.plan.model import predict
from tianji.strategy.plan.plan_file import Plan
from tianji.strategy.plan.profile import Profile
from tianji.strategy.plan.solver import PlanRequest, candidates, shape_of
from tianji.strategy.plan.split import Split
from tianji.strategy.probe import planner
from tianji.strategy.probe.probe import probe

COLUMNS = (
    "split", "planned", "heat", "seed", "predicted", "production", "consumption", "error",
    "foreign_load",
)  # fmt: skip
ERROR = 0.10


def name_of(split: Split) -> str:
    """One that no other split has."""
    return f"{split.name}x{split.learner_cores}E{split.envs}" + "B" * split.buffer_alone


def chosen(race: Race, most: float) -> list[Split]:
    """The planned split first; where there are too many others, an even choice of them."""
    profile, wish, planned = race.profile, race.wish, race.planned
    found = [split for split in candidates(profile, wish) if split != planned]
    others = sorted(found, key=lambda split: -rate(profile, split))
    if len(others) > most - 1:
        step = (len(others) - 1) / max(1, most - 2)
        others = [others[round(i * step)] for i in range(int(most) - 1)]
    return [planned, *others]


def rate(profile: Profile, split: Split) -> float:
    """What is predicted of a split."""
    return predict(profile, split).production


def raced(sheet: Sheet, race: Race, most: float) -> list[Split]:
    """The fastest of the heats, and the fastest of all with every other number of environments."""
    profile, wish, rates = race.profile, race.wish, dict[Split, float]()

    def size(split: Split) -> int:
        return split.cores(profile.work)

    for number, heat in enumerate(heats.packed(heats.shapes(profile, wish), size, wish.cores), 1):
        if time.monotonic() > sheet.ends_at:
            raise OutOfTime
        foreign = {"heat": number, "seed": 0, "foreign_load": busy_share(0.2)}
        for split, row in zip(heat, heats.run(heat, size, race.train), strict=True):
            if row is not None:
                sheet.add(row | race.about(split) | foreign)
                rates[split] = row["production"]
    if not rates:
        return [race.planned]
    first, *others = sorted(rates, key=lambda split: -rates[split])
    same = [s for s in candidates(profile, wish) if shape_of(s) == shape_of(first)]
    room = int(min(most, len(others) + len(same))) - 1  # beside the planned one
    fastest = dict.fromkeys([first, *others[: room // 2], *same, *others])
    fastest.pop(race.planned, None)
    return [race.planned, *list(fastest)[:room]]


@dataclass
class Race:
    """What all runs have in common."""

    config: Path
    overrides: list[str]
    seconds: float
    wish: PlanRequest
    profile: Profile
    planned: Split

    def about(self, split: Split) -> Row:
        """What is known of a run before it begins."""
        return {"split": name_of(split), "planned": split == self.planned, "heat": 0}

    def train(self, split: Split, seed: int = 0) -> Row:
        """One run that follows a plan."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "plan.json"
            plan_file.write(Plan(self.profile, split), file)
            settings = [*self.overrides, *ENDLESS, "global_cfg.rebalance=False"]
            more = ("--seed", str(seed), "--plan", str(file))
            found = summary_of(self.config, settings, self.seconds, *more)["plan"]
        if found["measured"] is None:
            raise ValueError(f"{self.seconds:g} s are too short for a rate: give more --seconds")
        return {
            "predicted": found["predicted"]["production_per_second"],
            "production": found["measured"]["production_per_second"],
            "consumption": found["measured"]["consumption_per_second"],
            "error": found["error"]["production_per_second"],
        }


def measured(job: Job, n_cores: int) -> Profile | None:
    """What the job costs by now; None, and a line, where that cannot be measured any more."""
    try:
        return probe(job, n_cores)
    except TianJiError as problem:
        print(f"  the costs of the round before count: {problem}", flush=True)
        return None


def table(rows: list[Row]) -> str:
    """The fastest split first, and the verdict."""
    return "\n\n".join(filter(None, [finals(where(rows, heat=0)), heated(rows)]))


def heated(rows: list[Row]) -> str:
    """What came of the heats; empty without them."""
    once = [row for row in rows if row["heat"]]
    if not once:
        return ""
    fastest = sorted(once, key=lambda row: -row["production"])
    said = ", ".join(f"{row['split']} {row['production']:,.0f}" for row in fastest[:6])
    close = sum(abs(row["error"]) <= ERROR for row in once)
    middle = Spread.of(row["error"] for row in once)
    return (
        f"Heats: every shape once, {len(once)} of them; fastest: {said} steps/s. Predictions of "
        f"single runs: {close} within {ERROR:.0%}, errors {middle.text(2)}."
    )


def finals(rows: list[Row]) -> str:
    """What was run in every round."""
    if not rows:
        return "no round was run"
    names = sorted(
        values(rows, "split"),
        key=lambda name: -spread(where(rows, split=name), "production").middle,
    )
    lines = []
    for name in names:
        mine = where(rows, split=name)
        mark = "planned" if mine[0]["planned"] else ""
        columns = {"predicted": 0, "production": 0, "consumption": 0}
        lines.append([name, mark, *cells(mine, columns), _signed(spread(mine, "error"))])
    header = ["split", "", "predicted steps/s", "measured steps/s", "samples/s", "error"]
    return f"every split, {machine(REAL)}\n\n{markdown(header, lines)}\n\n{verdict(rows, names)}"


def _signed(error: Spread) -> str:
    """The median of what single runs were off by, and its range: as in `+2.0% (-4.0 to +9.0)`."""
    if error.low == error.high:
        return f"{error.middle:+.1%}"
    return f"{error.middle:+.1%} ({100 * error.low:+.1f} to {100 * error.high:+.1f})"


def verdict(rows: list[Row], names: list[str]) -> str:
    """Whether the planned split is as fast as the fastest, and how far predictions were off."""
    best = where(rows, split=names[0])
    planned = [row for row in rows if row["planned"]]
    if not planned:
        return "the planned split was not measured"
    ours, theirs = spread(planned, "production"), spread(best, "production")
    within = "within" if ours.middle >= theirs.low else "below"
    errors = {name: spread(where(rows, split=name), "error").middle for name in names}
    close = sum(abs(error) <= ERROR for error in errors.values())
    return (
        f"The planned split makes {ours.middle / theirs.middle:.0%} of the fastest one's median, "
        f"{within} its range. Its prediction is off by {_signed(spread(planned, 'error'))}; "
        f"{close} of {len(names)} predictions are within {ERROR:.0%}."
    )


def panels(rows: list[Row]) -> list[Panel]:
    """Predicted beside measured."""
    rows = where(rows, heat=0) or rows
    names = values(rows, "split")
    panel = Panel("every split (real)", "split", "steps/s", is_bars=True)
    panel.series = [
        Series(column, [(name, spread(where(rows, split=name), column)) for name in names])
        for column in ("predicted", "production")
    ]
    return [panel]


def main() -> int:
    options = parser("plan", __doc__, seconds=6)
    options.add_argument("--config", type=existing_file, default=CONFIGS / "cartpole_dqn.py")
    options.add_argument("--set", dest="overrides", action="append", default=[])
    options.add_argument("--cores", type=cores(), default=usable_here())
    options.add_argument("--groups", type=count, help="only splits of so many groups")
    options.add_argument("--most", type=count, default=math.inf, help="splits that are run")
    options.add_argument("--heats", action="store_true", help="every shape once, to choose them")
    given = options.parse_args()
    try:
        config = load(given.config, [*given.overrides, *ENDLESS])  # as all of them are trained
        job = try_out(config)
        profile = probe(job, given.cores)
        wish = PlanRequest(given.cores, groups=given.groups)
        planned = planner.make(config, profile, wish).plan.split
    except TianJiError as problem:
        options.error(str(problem))
    race = Race(given.config, given.overrides, given.seconds, wish, profile, planned)
    most = 4 if given.quick else given.most
    sheet = Sheet(given.out, "plan", COLUMNS, given.total)
    with sheet:
        splits = raced(sheet, race, most) if given.heats else chosen(race, most)
        for i, seed in enumerate(seeds_of(given)):
            if i:
                race.profile = measured(job, given.cores) or race.profile
            for split in splits:
                about = race.about(split) | {"seed": seed, "foreign_load": busy_share(0.2)}
                attempt(sheet, about, race.train, split, seed)
    return sheet.finish(table, panels)


if __name__ == "__main__":
    sys.exit(main())
