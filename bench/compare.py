"""Times our runs beside a plain loop and Stable-Baselines3: interleaved seeds, medians, ratios."""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
import tempfile
from pathlib import Path

from compare_table import table
from options import OUT, Options, count, positive
from tasks import SYSTEMS, TASKS, Measured, missing, ours, peer, read_ours, read_peer
from trainings import FAILURES, busy_share, execute


def measure(name: str, system: str, seed: int, options: argparse.Namespace) -> Measured:
    """One run; a timeout or a failure is a run that never reached the target."""
    foreign = busy_share()
    with tempfile.TemporaryDirectory() as parent:
        run_dir = Path(parent) / "run"
        try:
            if system == "ours":
                words = ours(TASKS[name], seed, run_dir, options.set)
                _, wall = execute(words, options.timeout)
                fields = read_ours(run_dir)
            else:
                words = peer(TASKS[name], system, seed, options.threads)
                stdout, wall = execute(words, options.timeout)
                fields = read_peer(stdout)
        except FAILURES as problem:
            print(f"  {system} seed {seed} did not finish: {problem}", flush=True)
            nothing = {"process_seconds": math.inf, "training_seconds": math.inf}
            fields = {**nothing, "env_steps": 0, "steps_per_second": 0.0}
            wall = math.inf
    return Measured(name, system, seed, wall_seconds=wall, foreign_load=foreign, **fields)


def collect(options: argparse.Namespace) -> list[Measured]:
    """Seed by seed, one process at a time, so that a noisy minute hits every system."""
    runs: list[Measured] = []
    for task in options.tasks:
        present = []
        for system in options.systems:
            reason = missing(TASKS[task], system)
            if reason:
                print(f"{task}: {system} is left out, {reason}", flush=True)
            else:
                present.append(system)
        for seed in options.seeds:
            for system in present:
                run = measure(task, system, seed, options)
                seconds = getattr(run, TASKS[task].clock.value)
                print(f"{task} seed {seed} {system}: {seconds:.2f} s", flush=True)
                runs.append(run)
    return runs


def write(runs: list[Measured], text: str, out: Path) -> None:
    """`compare.json` and `.csv` hold every run, `.md` the table."""
    out.mkdir(parents=True, exist_ok=True)
    rows = [run.row() for run in runs]
    (out / "compare.json").write_text(json.dumps(rows, indent=1) + "\n")
    (out / "compare.md").write_text(text + "\n")
    with (out / "compare.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def main() -> int:
    parser = Options(__doc__)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_seeds()
    parser.add_argument("--timeout", type=positive, default=600.0, help="seconds for one run")
    parser.add_argument("--threads", type=count, default=1, help="torch threads of the peers")
    parser.add_argument("--set", action="append", default=[], help="key=value, for ours alone")
    parser.add_out(OUT)
    options = parser.parse_args()
    runs = collect(options)
    if not runs:
        print("nothing was run: no system of this selection is installed")
        return 2
    text = table(runs)
    write(runs, text, options.out)
    print("\n" + text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
