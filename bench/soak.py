"""Measures whether a run grows in an hour of faults: memory, files, threads, shared memory.

It is `tianji chaos` with a fault every 20 s. A line is fitted to what all processes of the run take
together, once a second, behind the first quarter of the time, in which stores fill up: by the
median of the slopes of all pairs (Theil and Sen), so that a second in which a process was away
changes nothing. Flat means that the line rises over the hour, or however long it was, by no more
than so much of its middle, or by less than one file, thread or segment.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from options import CONFIGS, OUT, ROOT, Options, existing_file, positive, whole
from tables import markdown
from trainings import environment

FILLING = 0.25  # share of the time that is left out at its beginning
MOST_GROWTH = 0.05  # of the middle of memory, from the beginning to the end
MOST_POINTS = 600  # that pairs are made of
KINDS = {  # of what is taken: how it is called, its unit in the table, and how much that is
    "memory_bytes": ("memory", "MiB", 2**20),
    "open_files": ("open files", "files", 1),
    "threads": ("threads", "threads", 1),
    "segments": ("views of shared memory", "views", 1),
}


def steady_slope(points: Sequence[tuple[float, float]]) -> float:
    """The median slope of all pairs of points."""
    some = points[:: max(1, len(points) // MOST_POINTS)]
    pairs = ((a, b) for i, a in enumerate(some) for b in some[i + 1 :])
    return statistics.median((y - v) / (x - u) for (u, v), (x, y) in pairs)


def row(kind: str, usage: Sequence[dict[str, Any]]) -> tuple[list[str], bool]:
    """A line of the table, and whether it is flat."""
    name, unit, size = KINDS[kind]
    points = [(float(each["at"]), each[kind] / size) for each in usage]
    rate, middle = steady_slope(points), statistics.median(value for _, value in points)
    growth = rate * (points[-1][0] - points[0][0])
    flat = growth <= (MOST_GROWTH * middle if kind == "memory_bytes" else 1.0)
    most = max(value for _, value in points)
    numbers = [f"{middle:,.1f}", f"{most:,.1f}", f"{rate * 3600:+,.2f}", f"{growth:+,.2f}"]
    return [f"{name}, {unit}", *numbers, "flat" if flat else "GROWS"], flat


def soak(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Runs the chaos test; returns what it wrote."""
    words = [sys.executable, "-m", "tianji", "chaos", str(options.config), "--out", str(folder)]
    words += ["--seed", str(options.seed), "--seconds", str(options.seconds)]
    words += ["--every", str(options.every)] + (["--faults", options.faults] * bool(options.faults))
    words += [word for override in options.overrides for word in ("--set", override)]
    subprocess.run(words, cwd=ROOT, env=environment(), check=False)
    path = folder / "chaos.json"
    if not path.exists():
        raise SystemExit("the chaos test has left no result")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def main() -> int:
    parser = Options(__doc__)
    parser.add_argument("--config", type=existing_file, default=CONFIGS / "cartpole_dqn.py")
    parser.add_argument("--seconds", type=positive, default=3_600.0, help="default: an hour")
    parser.add_argument("--every", type=positive, default=20.0, help="seconds between faults")
    parser.add_argument("--seed", type=whole, default=1)
    parser.add_argument("--faults", help="only these, as in kill,hang")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_out(OUT / "soak")
    options = parser.parse_args()
    folder = options.out.resolve() / "chaos"
    shutil.rmtree(folder, ignore_errors=True)
    found = soak(options, folder)
    usage = found["usage"][int(FILLING * len(found["usage"])) :]
    if len(usage) < 10:
        raise SystemExit("fewer than ten seconds were seen: give more --seconds")
    rows, flat = zip(*(row(kind, usage) for kind in KINDS), strict=True)
    header = ("what", "median", "most", "per hour", "in all", "verdict")
    n_faults = sum(not trial["undone"] for trial in found["faults"])
    table = markdown(header, rows)
    print(f"\n{table}\n\n{n_faults} faults in {usage[-1]['at'] - found['usage'][0]['at']:,.0f} s")
    (options.out / "soak.md").write_text(table + "\n")
    return 0 if all(flat) and found["held"] else 1


if __name__ == "__main__":
    sys.exit(main())
