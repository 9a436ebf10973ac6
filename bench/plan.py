"""Runs every split of the cores, and says where the planned one lies among them.

The job is measured and planned as `tianji plan` does it. Then each split trains for some seconds,
and its rates, without start and warm-up, stand beside what was predicted for it. Before every
further round the job is measured again, because the speed of a shared machine drifts; medians are
compared. Asked: the planned split lies within the range of the fastest one, and predictions within
10 %. With --most only so many splits are run, evenly spread from the fastest to the slowest by
prediction; the planned one is always among them.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from experiment import REAL, Trial, conduct, machine, parser
from figures import Panel, Series
from options import CONFIGS, cores, count, existing_file
from tables import cells, markdown, spread, values, where
from trainings import ENDLESS, Row, busy_share, summary_of

from tianji.config import load
from tianji.errors import TianJiError
from tianji.planning import planfile
from tianji.planning.model import predict
from tianji.planning.planfile import Plan
from tianji.planning.profile import Profile
from tianji.planning.solver import Wish, candidates, solve
from tianji.planning.split import Split
from tianji.probing.probe import probe
from tianji.resources import available_cores

COLUMNS = (
    "split", "planned", "seed", "predicted", "production", "consumption", "error", "foreign_load",
)  # fmt: skip
ERROR = 0.10


def name_of(split: Split) -> str:
    """One that no other split has."""
    return f"{split.name}x{split.learner_cores}E{split.envs}" + "B" * split.buffer_alone


def chosen(profile: Profile, wish: Wish, most: float) -> list[Split]:
    """The planned split first; where there are too many others, an even choice of them."""
    planned = solve(profile, wish)[0].split
    found = [split for split in candidates(profile, wish) if split != planned]
    others = sorted(found, key=lambda split: -rate(profile, split))
    if len(others) > most - 1:
        step = (len(others) - 1) / max(1, most - 2)
        others = [others[round(i * step)] for i in range(int(most) - 1)]
    return [planned, *others]


def rate(profile: Profile, split: Split) -> float:
    """What is predicted of a split."""
    return predict(profile, split).production


def train(config: Path, plan: Plan, overrides: list[str], seed: int, seconds: float) -> Row:
    """One run that follows a plan."""
    foreign = busy_share(0.2)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plan.json"
        planfile.write(plan, file)
        settings = [*overrides, *ENDLESS, "global_cfg.rebalance=False"]  # the split is measured
        summary = summary_of(config, settings, seconds, "--seed", str(seed), "--plan", str(file))
    found = summary["plan"]
    if found["measured"] is None:
        raise ValueError(f"{seconds:g} s are too short for a rate: give more --seconds")
    return {
        "predicted": found["predicted"]["production_per_second"],
        "production": found["measured"]["production_per_second"],
        "consumption": found["measured"]["consumption_per_second"],
        "error": found["error"]["production_per_second"],
        "foreign_load": foreign,
    }


def table(rows: list[Row]) -> str:
    """The fastest split first, and the verdict."""
    names = sorted(
        values(rows, "split"),
        key=lambda name: -spread(where(rows, split=name), "production").middle,
    )
    lines = []
    for name in names:
        mine = where(rows, split=name)
        mark = "planned" if mine[0]["planned"] else ""
        columns = {"predicted": 0, "production": 0, "consumption": 0}
        lines.append([name, mark, *cells(mine, columns), f"{error_of(mine):+.1%}"])
    header = ["split", "", "predicted steps/s", "measured steps/s", "samples/s", "error"]
    return f"every split, {machine(REAL)}\n\n{markdown(header, lines)}\n\n{verdict(rows, names)}"


def error_of(rows: list[Row]) -> float:
    """How far the median prediction is from the median measurement."""
    return spread(rows, "predicted").middle / spread(rows, "production").middle - 1


def verdict(rows: list[Row], names: list[str]) -> str:
    """Whether the planned split is as fast as the fastest, and how far predictions were off."""
    best = where(rows, split=names[0])
    planned = [row for row in rows if row["planned"]]
    if not planned:
        return "the planned split was not measured"
    ours, theirs = spread(planned, "production"), spread(best, "production")
    within = "within" if ours.middle >= theirs.low else "below"
    close = sum(abs(error_of(where(rows, split=name))) <= ERROR for name in names)
    return (
        f"The planned split makes {ours.middle / theirs.middle:.0%} of the fastest one's median, "
        f"{within} its range. Its prediction is off by {error_of(planned):+.1%}; {close} of "
        f"{len(names)} predictions are within {ERROR:.0%}."
    )


def panels(rows: list[Row]) -> list[Panel]:
    """Predicted beside measured."""
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
    options.add_argument("--cores", type=cores(), default=len(available_cores()))
    options.add_argument("--groups", type=count, help="only splits of so many groups")
    options.add_argument("--most", type=count, default=math.inf, help="splits that are run")
    given = options.parse_args()
    try:
        config = load(given.config, given.overrides)
        profile = probe(config, given.cores)
        wish = Wish(given.cores, groups=given.groups)
        planned = solve(profile, wish)[0].split
    except TianJiError as problem:
        options.error(str(problem))
    splits = chosen(profile, wish, 4 if given.quick else given.most)
    probed = [profile]  # for the first round

    def trials(seed: int) -> Iterator[Trial]:
        profile = probed.pop() if probed else probe(config, given.cores)
        for split in splits:
            plan = Plan(profile, split, predict(profile, split))
            row = {"split": name_of(split), "planned": split == planned}
            yield row, train, (given.config, plan, given.overrides, seed, given.seconds)

    return conduct("plan", COLUMNS, given, trials, table, panels)


if __name__ == "__main__":
    sys.exit(main())
