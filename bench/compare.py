"""Times our runs beside a plain loop and Stable-Baselines3: interleaved seeds, medians, ratios."""

from __future__ import annotations

import argparse
import csv
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

from compare_table import table
from experiment import busy_share, execute
from tasks import BENCH, SYSTEMS, TASKS, Measured, missing, ours, peer, read_ours, read_peer


def measure(name: str, system: str, seed: int, options: argparse.Namespace) -> Measured:
    """One run; a timeout or a failure is a run that never reached the target."""
    foreign = round(busy_share(), 3)
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        try:
            if system == "ours":
                words = ours(TASKS[name], seed, run_dir, options.set)
                _, wall = execute(words, options.timeout)
                fields = read_ours(run_dir)
            else:
                words = peer(TASKS[name], system, seed, options.threads)
                stdout, wall = execute(words, options.timeout)
                fields = read_peer(stdout)
        except (subprocess.TimeoutExpired, RuntimeError, OSError, KeyError, ValueError) as problem:
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


def write(runs: list[Measured], text: str, folder: Path) -> None:
    """`compare.json` and `.csv` hold every run, `.md` the table."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [run.row() for run in runs]
    (folder / "compare.json").write_text(json.dumps(rows, indent=1) + "\n")
    (folder / "compare.md").write_text(text + "\n")
    with (folder / "compare.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for one run")
    parser.add_argument("--threads", type=int, default=1, help="torch threads of the peers")
    parser.add_argument("--set", action="append", default=[], help="key=value, for ours alone")
    parser.add_argument("--out", type=Path, default=BENCH / "out")
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
