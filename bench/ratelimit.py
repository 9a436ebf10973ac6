"""Our rate control beside a blocking samples-per-insert limiter, at the same ratio and costs.

Actors and a learner are threads that sleep for as long as their work would take (simulated). Their
lengths are random, and the same for both. What differs is what stands between them:

  ours      the roles' own Buffer with its Balance, over the rings and bells of shared memory: the
            buffer takes no more than the ratio allows, and a full ring has no slot for an actor
  limiter   insert waits and sample waits, as with Reverb's SampleToInsertRatio (bench/limiter.py),
            with three error buffers: the least that works, one batch, and 0.1 * ratio * min_size,
            which is Acme's rule

Shown are the learner's idle share, throughput, and the standard deviation of the ratio over short
windows, in percent of the ratio.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from dataclasses import replace

from experiment import (
    SIMULATED,
    Row,
    Sheet,
    attempt,
    busy_share,
    cells,
    machine,
    markdown,
    parser,
    seeds_of,
    spread,
    where,
)
from figures import Panel, Series
from measures import Event, window_ratios
from rivals import Costs, Log, run_limiter, run_ours

WINDOWS = (0.1, 0.25, 1.0)  # seconds
SETTLING_SECONDS = 1.0  # left out of what is measured
OURS = "ours"
COLUMNS = (
    "kind", "scenario", "way", "seed", "learner_idle", "actor_idle", "consumption", "receiving",
    "ratio", *(f"deviation_{width:g}s" for width in WINDOWS), "updates", "foreign_load",
)  # fmt: skip


SCENARIOS = {
    "balanced": Costs(),
    "slow actors": Costs(trajectory_seconds=0.0625),
    "slow learner": Costs(update_seconds=0.00625),
}


# ------------------------------------------------------------------------------- what is made of it


def evaluate(log: Log, costs: Costs) -> Row:
    """Idle shares, rates and the ratio's deviation, without the beginning."""
    start, end = log.learned[0][0] + SETTLING_SECONDS, log.learned[-1][0]
    span = end - start

    def total(events: list[Event]) -> float:
        return sum(n for moment, n in events if start <= moment < end)

    came, went = total(log.came), total(log.went)
    row: Row = {
        "learner_idle": max(0.0, 1 - total(log.learned) / span),
        "actor_idle": max(0.0, 1 - total(log.acted) / span / costs.n_actors),
        "consumption": went / span,
        "receiving": came / span,
        "ratio": went / came,
        "updates": len(log.learned),
    }
    for width in WINDOWS:
        ratios = window_ratios(log.came, log.went, width, start, end)
        deviation = statistics.pstdev(ratios) if ratios else float("nan")
        row[f"deviation_{width:g}s"] = 100 * deviation / costs.ratio
    return row


def ways(costs: Costs) -> dict[str, float | None]:
    """Ours, and the limiter with its error buffers."""
    buffers = {
        "least": max(1.0, costs.ratio),
        "one batch": float(costs.batch),
        "Acme's": 0.1 * costs.ratio * costs.min_size,
    }
    return {OURS: None} | {f"limiter, {name} ({n:g})": n for name, n in buffers.items()}


def measure(costs: Costs, error_buffer: float | None, seed: int, seconds: float) -> Row:
    """One run of one way."""
    foreign = round(busy_share(), 3)
    if error_buffer is None:
        log = run_ours(costs, seed, seconds)
    else:
        log = run_limiter(costs, error_buffer, seed, seconds)
    return evaluate(log, costs) | {"foreign_load": foreign}


def table(rows: list[Row]) -> str:
    """A section for each scenario, and whether ours is lower."""
    digits = {"learner_idle": 3, "actor_idle": 3, "consumption": 0, "ratio": 3}
    digits |= {f"deviation_{width:g}s": 1 for width in WINDOWS}
    header = ["way", "learner idle", "actors idle", "consumed/s", "ratio",
              *(f"deviation {width:g} s %" for width in WINDOWS)]  # fmt: skip
    found = [f"Rate control, ratio 4, {machine(SIMULATED)}"]
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        here = where(rows, scenario=scenario)
        names = dict.fromkeys(row["way"] for row in here)
        lines = [[name, *cells(where(here, way=name), digits)] for name in names]
        found += [f"**{scenario}**", markdown(header, lines), verdict(here)]
    return "\n\n".join(found)


def verdict(rows: list[Row]) -> str:
    """Which limiters ours beats in both, in one or in neither."""
    said = []
    ours = where(rows, way=OURS)
    for name in dict.fromkeys(row["way"] for row in rows if row["way"] != OURS):
        theirs = where(rows, way=name)
        lower = [
            word
            for word, column in (("idle", "learner_idle"), ("deviation", "deviation_0.25s"))
            if spread(ours, column).middle < spread(theirs, column).middle
        ]
        said.append(f"{name}: {' and '.join(lower) or 'neither'}")
    return f"Lower with ours (medians, windows of 0.25 s) than with the {'; '.join(said)}"


def panels(rows: list[Row]) -> list[Panel]:
    """Idle share and deviation, bars for each scenario."""
    drawn = []
    for title, column, unit in (
        ("learner idle", "learner_idle", "share of time"),
        ("deviation of the ratio, windows of 0.25 s", "deviation_0.25s", "% of the ratio"),
    ):
        panel = Panel(f"Rate control: {title} ({SIMULATED})", "", unit, is_bars=True)
        scenarios = dict.fromkeys(row["scenario"] for row in rows)
        for way in dict.fromkeys(row["way"] for row in rows):
            runs = [(s, where(rows, scenario=s, way=way)) for s in scenarios]
            panel.series.append(Series(way, [(s, spread(r, column)) for s, r in runs if r]))
        drawn.append(panel)
    return drawn


def main() -> int:
    options = parser("ratelimit", __doc__, seconds=10)
    options.add_argument("--scenarios", nargs="+", choices=SCENARIOS, help="default: all")
    options.add_argument("--n-actors", type=int, default=8)
    given = options.parse_args()
    if given.quick:
        given.seconds = min(given.seconds, 4.0)
    sheet = Sheet(given.out, "ratelimit", COLUMNS)
    names = given.scenarios or (["balanced"] if given.quick else list(SCENARIOS))
    for seed in seeds_of(given):
        for scenario in names:
            costs = scaled(SCENARIOS[scenario], given)
            for way, error_buffer in ways(costs).items():
                row = {"kind": SIMULATED, "scenario": scenario, "way": way, "seed": seed}
                attempt(sheet, row, measure, costs, error_buffer, seed, given.seconds)
    if not sheet.rows:
        return 1
    sheet.finish(table(sheet.rows), panels(sheet.rows))
    return 0


def scaled(costs: Costs, given: argparse.Namespace) -> Costs:
    """Another number of actors that produce as much together."""
    times = given.n_actors / costs.n_actors
    return replace(
        costs, n_actors=given.n_actors, trajectory_seconds=costs.trajectory_seconds * times
    )


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
