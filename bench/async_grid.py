"""What asynchrony costs: PPO on small tasks, variants times seeds, several runs side by side.

    python bench/async_grid.py --grid cartpole lag agents groups --seeds 32

Every run has two cores of its own. The table says how many runs were solved, the medians of steps
and seconds to the target with 95 % intervals, in which a run that did not get there counts as
endless, and the median of both over those of the first variant with the same seed.
"""

from __future__ import annotations

import math
import os
import queue
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from experiment import Sheet
from options import CONFIGS, OUT, ROOT, Options, count, positive
from tables import markdown, values, where
from trainings import FAILURES, Row, summary_of

CARTPOLE = CONFIGS / "cartpole_ppo.py"
TASKS = ROOT / "tests" / "tasks"
TWO = "actor_cfg.num=2"
ACROBOT = (TWO, "environment.gym_name='Acrobot-v1'", "exp.stop_return=-100", "actor_cfg.envs=32")
COLUMNS = ("variant", "seed", "solved", "env_steps", "seconds", "updates", "staleness_mean", "ess")
Variants = Mapping[str, tuple[Path, tuple[str, ...]]]


def both_modes(config: Path, *settings: str) -> Variants:
    """Synchronous, and asynchronous with the correction that is the default, and without."""
    modes = {
        "synchronous": ("hyp.mode='sync'",),
        "asynchronous": ("hyp.mode='async'",),
        "asynchronous, none": ("hyp.mode='async'", "hyp.correction='none'"),
    }
    return {name: (config, (*settings, *more)) for name, more in modes.items()}


def lags() -> Variants:
    """Batches drawn from a pool of k of them, with and without the correction (Figure 12)."""
    found = {}
    for k in (1, 2, 4, 8):
        for name, more in (("corrected", ()), ("none", ("hyp.correction='none'",))):
            keys = ("hyp.mode='async'", f"hyp.buffer_size={k}", *more)
            found[f"Lag{k}, {name}"] = (CARTPOLE, keys)
    return found


def agents() -> Variants:
    """So many environments, the same samples per message and per update."""
    sizes = {n: (f"actor_cfg.envs={n}", f"actor_cfg.send_size={128 // n}") for n in (8, 1, 64)}
    return {f"{n} environments": (CONFIGS / "cartpole_dqn.py", keys) for n, keys in sizes.items()}


def groups() -> Variants:
    """Groups that are averaged, each with an actor; all of them share the two cores."""
    every = "learner_cfg.send_root_interval=1"
    return {
        f"{n} groups": (CARTPOLE, (f"global_cfg.group_num={n}", f"actor_cfg.num={n}", every))
        for n in (1, 2, 4)
    }


GRIDS = {
    "cartpole": partial(both_modes, CARTPOLE, TWO),
    "catch": partial(both_modes, TASKS / "catch_ppo.py", TWO),
    "acrobot": partial(both_modes, CARTPOLE, *ACROBOT),
    "lag": lags,
    "agents": agents,
    "groups": groups,
}


def trained(config: Path, settings: Sequence[str], seed: int, seconds: float) -> Row:
    """One run, as a row."""
    said = [*settings, "global_cfg.rebalance=False", "exp.save_seconds=None"]
    found = summary_of(config, said, seconds, "--seed", str(seed), OMP_NUM_THREADS="1")
    solved = found["status"] == "solved"
    return {
        "solved": solved,
        "env_steps": found["env_steps"] if solved else math.inf,
        "seconds": found["training_seconds"] if solved else math.inf,
        "updates": found["updates"],
        "staleness_mean": found["staleness"]["mean"],
        "ess": found.get("ess"),
    }


def interval(numbers: Sequence[float]) -> tuple[float, float, float]:
    """The median, and between which order statistics it lies in 95 of 100 samples."""
    ordered, n = sorted(numbers), len(numbers)
    tail, below = 0.0, 0
    while below < (n - 1) // 2 and tail + math.comb(n, below) / 2**n <= 0.025:
        tail += math.comb(n, below) / 2**n
        below += 1
    least = max(0, below - 1)
    return statistics.median(ordered), ordered[least], ordered[n - 1 - least]


def ratio(rows: list[Row], name: str, column: str) -> str:
    """Of a variant over the first one with the same seed: median and interval."""
    first = {r["seed"]: r[column] for r in where(rows, variant=values(rows, "variant")[0])}
    pairs = [(r[column], first[r["seed"]]) for r in where(rows, variant=name) if r["seed"] in first]
    known = [a / b for a, b in pairs if math.isfinite(a) or math.isfinite(b)]  # endless or 0 else
    if not known:
        return "-"
    middle, low, high = interval(known)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def table(rows: list[Row]) -> str:
    """A line for each variant."""
    header = ["variant", "solved", "steps", "95 %", "over the first"]
    header += ["seconds", "95 %", "over the first", "staleness", "ESS/n"]
    lines = []
    for name in values(rows, "variant"):
        own = where(rows, variant=name)
        steps, seconds = (interval([r[c] for r in own]) for c in ("env_steps", "seconds"))
        stale = statistics.fmean(r["staleness_mean"] or 0.0 for r in own)
        ess = [r["ess"] for r in own if r["ess"] is not None]
        lines.append(
            [
                name,
                f"{sum(r['solved'] for r in own)} of {len(own)}",
                f"{steps[0]:,.0f}",
                f"{steps[1]:,.0f} to {steps[2]:,.0f}",
                ratio(rows, name, "env_steps"),
                f"{seconds[0]:.2f}",
                f"{seconds[1]:.2f} to {seconds[2]:.2f}",
                ratio(rows, name, "seconds"),
                f"{stale:.2f}",
                f"{statistics.fmean(ess):.3f}" if ess else "-",
            ]
        )
    return markdown(header, lines)


def pairs(cores: Sequence[int]) -> queue.SimpleQueue[set[int]]:
    """Two cores for each run that goes on at the same time."""
    found: queue.SimpleQueue[set[int]] = queue.SimpleQueue()
    for i in range(0, len(cores) - 1, 2):
        found.put({cores[i], cores[i + 1]})
    return found


def main() -> int:
    options = Options(__doc__)
    options.add_argument("--grid", choices=GRIDS, nargs="+", default=["cartpole"])
    options.add_argument("--seeds", type=count, default=8, help="so many, from 1 (8)")
    options.add_argument("--seconds", type=positive, default=60.0, help="most of one run (60)")
    options.add_argument("--total", type=positive, default=math.inf, help="of all runs of a grid")
    options.add_out(OUT / "async_grid")
    given = options.parse_args()
    free = pairs(sorted(os.sched_getaffinity(0)))
    if free.empty():
        options.error("a run wants two cores, and there are not as many")
    for grid in given.grid:
        conduct(grid, given.seeds, given.seconds, given.total, given.out, free)
    return 0


def conduct(
    grid: str,
    n_seeds: int,
    seconds: float,
    total: float,
    out: Path,
    free: queue.SimpleQueue[set[int]],
) -> None:
    """Runs a grid, seeds in the outer loop; prints its table and writes it beside the rows."""
    sheet = Sheet(out, grid, COLUMNS, total)

    def one(name: str, config: Path, settings: Sequence[str], seed: int) -> None:
        if time.monotonic() > sheet.ends_at:
            return
        cores = free.get()
        try:
            os.sched_setaffinity(0, cores)  # of this thread, and of what it starts
            row = {"variant": name, "seed": seed}
            sheet.add(row | trained(config, settings, seed, seconds))
        except FAILURES as problem:
            print(f"  {name}, seed {seed}, did not finish: {problem}", flush=True)
        finally:
            free.put(cores)

    with sheet, ThreadPoolExecutor(free.qsize()) as pool:
        for seed in range(1, n_seeds + 1):
            for name, (config, settings) in GRIDS[grid]().items():
                pool.submit(one, name, config, settings, seed)
    if sheet.rows:
        text = table(sheet.rows)
        (out / f"{grid}.md").write_text(text + "\n")
        print(f"\n{grid}\n\n{text}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
