"""What asynchrony costs: PPO on small tasks, variants times seeds, several runs side by side.

    python bench/async_grid.py --grid cartpole lag agents groups --seeds 32
    python bench/async_grid.py --grid pong --seconds 1500 --seeds 5

Every run has two cores of its own (`--cores-each`). The table says how many runs were solved, the
medians of steps and seconds to the target with 95 % intervals, in which a run that did not get
there counts as endless, and the median of both over those of the first variant with the same seed.
"""

from __future__ import annotations

import math
import os
import queue
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path

from experiment import Sheet
from options import CONFIGS, OUT, ROOT, Options, cores, count, positive
from tables import markdown, values, where
from trainings import FAILURES, Row, summary_of

CARTPOLE, MARL = CONFIGS / "cartpole_ppo.py", CONFIGS / "marl"
TASKS = ROOT / "tests" / "tasks"
TWO = "actor_cfg.num=2"
ACROBOT = (TWO, "environment.gym_name='Acrobot-v1'", "exp.stop_return=-100", "actor_cfg.envs=32")
SPREAD = (  # a small game, of two: a random pair returns -24, a good one -17
    *("environment.backend='mpe2'", "environment.N=2", "environment.max_cycles=15"),
    *("environment.reward='team'", "exp.stop_return=-20", "exp.train_steps=400_000"),
    *("actor_cfg.envs=16", "hyp.lr=2e-3", "hyp.step_len=16", "hyp.minibatch=512"),
    *("hyp.gamma=0.99", "hyp.lr_final=2e-3"),
)
FORAGING = (  # a small field: a random pair eats one of four
    *("environment.name='Foraging-5x5-2p-1f-v3'", "exp.max_step=25", "exp.stop_return=0.75"),
    *("exp.eval_step=None", "exp.train_steps=80_000", "model.hidden=[64, 64]", "hyp.lr=2e-3"),
    *("hyp.step_len=12", "hyp.warmup_size=2_000", "hyp.max_decay_step=20_000"),
    "hyp.decay_updates=150",
)
SIZES = (8, 1, 64)  # environments; the first is what the others are compared with
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
    """Batches drawn from a pool of k of them, with and without the correction (Figure 12).

    New is synchronous: no sample is old.
    """
    found: dict[str, tuple[Path, tuple[str, ...]]] = {"New": (CARTPOLE, ())}
    for k in (1, 2, 4, 8):
        for name, more in (("corrected", ()), ("none", ("hyp.correction='none'",))):
            keys = ("hyp.mode='async'", f"hyp.buffer_size={k}", *more)
            found[f"Lag{k}, {name}"] = (CARTPOLE, keys)
    return found


def objectives() -> Variants:
    """What is clipped against what, and how much an old sample may weigh."""
    ways: dict[str, tuple[str, ...]] = {"ewma": (), "ewma, kl_target": ("hyp.kl_target=0.01",)}
    for cap in (1, 2, 5):
        ways[f"decoupled, at most {cap}"] = ("hyp.average_decay=0", f"hyp.weight_cap={cap}")
    ways["V-trace in PPO"] = ("agent.type='corrections:VTracePPO'", "hyp.average_decay=0")
    ways["ewma, lr times sqrt(ESS/n)"] = ("agent.type='corrections:ESSPPO'",)
    ways["none"] = ("hyp.correction='none'",)
    found = {name: (CARTPOLE, (TWO, "hyp.mode='async'", *keys)) for name, keys in ways.items()}
    return {"synchronous": (CARTPOLE, (TWO,)), **found}


def environments() -> Variants:
    """So many of DQN, the same samples per message and per update."""
    sizes = {n: (f"actor_cfg.envs={n}", f"actor_cfg.send_size={128 // n}") for n in SIZES}
    return {f"{n} environments": (CONFIGS / "cartpole_dqn.py", keys) for n, keys in sizes.items()}


def environments_of_agents() -> Variants:
    """So many of QMIX: a message holds a sequence of each, an update takes as many as ever."""
    config = MARL / "fast_qmix_lbf.py"
    return {f"{n} environments": (config, (*FORAGING, f"actor_cfg.envs={n}")) for n in SIZES}


def groups() -> Variants:
    """Groups that are averaged, each with an actor; all of them share the two cores."""
    every = "learner_cfg.send_root_interval=1"
    return {f"{n} groups": (CARTPOLE, (f"global_cfg.group_num={n}", every)) for n in (1, 2, 4)}


GRIDS = {
    "cartpole": partial(both_modes, CARTPOLE, TWO),
    "catch": partial(both_modes, TASKS / "catch_ppo.py", TWO),
    "acrobot": partial(both_modes, CARTPOLE, *ACROBOT),
    "pong": partial(both_modes, CONFIGS / "atari" / "pong_laptop.py"),
    "mappo_spread": partial(both_modes, MARL / "mappo_spread.py", *SPREAD),
    "objective": objectives,
    "lag": lags,
    "environments": environments,
    "agents": environments_of_agents,
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


def places(cores: Sequence[int], each: int) -> queue.SimpleQueue[set[int]]:
    """The cores of each run that goes on at the same time."""
    found: queue.SimpleQueue[set[int]] = queue.SimpleQueue()
    for i in range(0, len(cores) - each + 1, each):
        found.put({*cores[i : i + each]})
    return found


def results(pool: Executor, runs: Iterable[Future[None]]) -> None:
    """Waits for all; what one raises is raised, and none is begun after it."""
    try:
        for run in as_completed(runs):
            run.result()
    finally:
        pool.shutdown(cancel_futures=True)


def main() -> int:
    options = Options(__doc__)
    options.add_argument("--grid", choices=GRIDS, nargs="+", default=["cartpole"])
    options.add_argument("--seeds", type=count, default=8, help="so many, from 1 (8)")
    options.add_argument("--seconds", type=positive, default=60.0, help="most of one run (60)")
    options.add_argument("--total", type=positive, default=math.inf, help="of all runs of a grid")
    options.add_argument("--cores-each", type=cores(), default=2, help="of a run (2)")
    options.add_out(OUT / "async_grid")
    given = options.parse_args()
    free = places(sorted(os.sched_getaffinity(0)), given.cores_each)
    if free.empty():
        options.error(f"a run wants {given.cores_each} cores, and there are not as many")
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
        place = free.get()
        try:
            os.sched_setaffinity(0, place)  # of this thread, and of what it starts
            row = {"variant": name, "seed": seed}
            sheet.add(row | trained(config, settings, seed, seconds))
        except FAILURES as problem:
            print(f"  {name}, seed {seed}, did not finish: {problem}", flush=True)
        finally:
            free.put(place)

    with sheet, ThreadPoolExecutor(free.qsize()) as pool:
        seeds, variants = range(1, n_seeds + 1), GRIDS[grid]().items()
        results(pool, [pool.submit(one, n, *each, seed) for seed in seeds for n, each in variants])
    if sheet.rows:
        text = table(sheet.rows)
        (out / f"{grid}.md").write_text(text + "\n")
        print(f"\n{grid}\n\n{text}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
