"""Measures start-up (process start to the first consumed sample) and an actor's own memory."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measures import Spread
from options import CONFIGS, OUT, ROOT, Options, count, existing_file, positive
from trainings import START_SECONDS, command, environment, read_summary

ASKED_SECONDS, ASKED_MEGABYTES = 3.0, 80.0


def descendants(pid: int) -> list[int]:
    """Every process below `pid`; one that ends while being read is left out."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def is_actor(pid: int) -> bool:
    """True for `python -m tianji.engines.worker ... actor...`."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    return "tianji.engines.worker" in words and any("actor" in word for word in words)


def private_bytes(pid: int) -> int:
    """USS: memory that would be freed if this process alone ended; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Private_"))


def watch(child: subprocess.Popen[bytes], seconds: float) -> dict[int, int]:
    """The highest USS of each actor until the command ends or `seconds` have passed."""
    peaks: dict[int, int] = {}
    deadline = time.monotonic() + seconds
    while child.poll() is None and time.monotonic() < deadline:
        for pid in filter(is_actor, descendants(child.pid)):
            peaks[pid] = max(peaks.get(pid, 0), private_bytes(pid))
        time.sleep(0.1)
    return peaks


def measure(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """One run of `options.seconds`; its summary's first sample and its actors' peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        settings = [f"actor_cfg.num={options.actors}", f"exp.max_seconds={options.seconds}"]
        settings += options.set
        words = command(options.config, run_dir, settings, "--seed", str(seed))
        log = Path(folder) / "log"
        with log.open("w") as file:
            child = subprocess.Popen(words, cwd=ROOT, stdout=file, stderr=file, env=environment())
            peaks = watch(child, options.seconds + 2 * START_SECONDS)
            if child.poll() is None:
                child.terminate()
            if child.wait():
                raise SystemExit(f"exit status {child.returncode}:\n{log.read_text()[-2000:]}")
        summary = read_summary(run_dir)
    if summary["first_consumed_seconds"] is None:
        raise SystemExit(f"no sample was consumed in {options.seconds:g} s: give more --seconds")
    return {
        "seed": seed,
        "first_consumed_seconds": summary["first_consumed_seconds"],
        "startup_seconds": summary["startup_seconds"],
        "actors": len(peaks),
        "actor_uss_megabytes": round(max(peaks.values(), default=0) / 1e6, 1),
    }


def verdict(name: str, values: list[float], asked: float, unit: str) -> str:
    found = Spread.of(values)
    word = "reached" if found.middle <= asked else "missed"
    return f"{name}: {found.text(2)} {unit}, median (range), asked <= {asked:g} {unit}: {word}"


def main() -> int:
    parser = Options(__doc__)
    parser.add_argument("--config", type=existing_file, default=CONFIGS / "cartpole_ppo.py")
    parser.add_argument("--actors", type=count, default=2)
    parser.add_argument("--set", action="append", default=[], help="key=value of the config")
    parser.add_argument(
        "--megabytes", type=positive, default=ASKED_MEGABYTES, help="that an actor may have"
    )
    parser.add_seeds()
    parser.add_argument("--seconds", type=positive, default=8.0, help="length of one run")
    parser.add_out(OUT)
    options = parser.parse_args()
    runs = []
    for seed in options.seeds:
        runs.append(measure(options, seed))
        print(json.dumps(runs[-1]), flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "startup.json").write_text(json.dumps(runs, indent=1) + "\n")
    first = [float(run["first_consumed_seconds"]) for run in runs]
    memory = [float(run["actor_uss_megabytes"]) for run in runs if run["actors"]]
    print(verdict("start to first consumed sample", first, ASKED_SECONDS, "s"))
    if memory:
        print(verdict("an actor's own memory (peak USS)", memory, options.megabytes, "MB"))
    else:
        print("an actor's own memory: no actor process was seen")
    return 0


if __name__ == "__main__":
    sys.exit(main())
