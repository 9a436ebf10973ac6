"""What the balance at run time (`global_cfg.rebalance`) brings: the same runs with and without it.

    ordinary    the DQN preset as it is: one actor, so there is nothing to do but to do no harm
    many        8 actors with Table 2's DQN and an update per step: more than the learner can use
    slower      8 actors whose environment becomes 5 times slower in mid-run; its cost is a sleep,
                so the result is simulated
    slower_cpu  the same, but the cost is work
    core        as `many`, and in mid-run another process takes one core
    drawing     wide observations, whose batches take about as long to make as to learn from
    updating    a large network with one actor, so that a core is free for a second thread

Runs with and without take turns. Shown are medians over the repeats, each over the last seconds
before the change and before the end. CPU time per update is what a machine that others use too
hardly changes: of the learner's process, and of all actors together. Everything goes to
bench/out/rebalance.csv.
"""

from __future__ import annotations

import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from measures import Spread
from options import BENCH, CONFIGS, OUT, Options, count, number_from
from tables import markdown, warning
from trainings import ENDLESS, busy_share, command, environment

MANY = ("actor_cfg.num=8", "global_cfg.replay_ratio=32")
LARGE = ("model.hidden=[1024, 1024]", "hyp.batch_size=512", "global_cfg.replay_ratio=64")
WINDOW_SECONDS = 10.0  # of a measurement
SETTLED_SECONDS = 30.0  # of training, before the change
SPIN = "import time\nwhile True: pass"


@dataclass(frozen=True)
class Scenario:
    """A job and what happens to it."""

    config: Path
    overrides: tuple[str, ...] = ()
    paces: tuple[str, str] | None = None  # of its environment, before and after
    takes_core: bool = False

    @property
    def changes(self) -> bool:
        """Whether anything happens in mid-run."""
        return self.paces is not None or self.takes_core


TABLE_2 = CONFIGS / "paper_dqn_cartpole.py"
SCENARIOS = {
    "ordinary": Scenario(CONFIGS / "cartpole_dqn.py"),
    "many": Scenario(TABLE_2, MANY),
    "slower": Scenario(BENCH / "drifting_dqn.py", (), ("sleep 0.001", "sleep 0.005")),
    "slower_cpu": Scenario(BENCH / "drifting_dqn.py", (), ("spin 0.0002", "spin 0.001")),
    "core": Scenario(TABLE_2, MANY, takes_core=True),
    "drawing": Scenario(BENCH / "wide_dqn.py"),
    "updating": Scenario(TABLE_2, LARGE),
}


@dataclass(frozen=True)
class Measured:
    """One window of one run."""

    scenario: str
    rebalance: bool
    repeat: int
    phase: str
    production: float  # steps/s
    consumption: float  # samples/s
    staleness: float  # updates, mean
    learner_idle: float
    awake: float
    learner_cpu: float  # milliseconds per update
    actors_cpu: float  # the same, all actors together
    decisions: int  # so far
    foreign_load: float  # share of the machine that others used just before the run


def run(name: str, rebalance: bool, repeat: int, seconds: float) -> list[Measured]:
    """One run, with its change in the middle."""
    scenario, foreign = SCENARIOS[name], busy_share()
    with tempfile.TemporaryDirectory() as parent:
        folder, pace = Path(parent) / "run", Path(parent) / "pace"
        overrides = [*scenario.overrides, *ENDLESS, f"global_cfg.rebalance={rebalance}"]
        if scenario.paces:
            pace.write_text(scenario.paces[0])
            overrides.append(f"environment.pace={pace}")
        whole = 2 * seconds if scenario.changes else seconds
        limits = ["--max-seconds", str(whole), "--seed", str(repeat), "--quiet"]
        process = subprocess.Popen(
            command(scenario.config, folder, overrides, *limits), env=environment()
        )
        hog, used = None, CpuTimes(process.pid, folder)
        try:
            if scenario.changes:
                wait(process, lambda: used.look() >= seconds)
                if scenario.paces:
                    part = pace.with_suffix(".part")
                    part.write_text(scenario.paces[1])
                    part.replace(pace)
                if scenario.takes_core:
                    hog = busy_on(max(os.sched_getaffinity(0)))
            wait(process, lambda: used.look() >= whole)
            process.wait()
        finally:
            for other in filter(None, (hog, process)):
                other.kill()
                other.wait()
        ends = {"before": seconds, "after": whole} if scenario.changes else {"": whole}
        found = [window(folder, end) | used.per_update(end) for end in ends.values()]
        return [
            Measured(name, rebalance, repeat, phase, foreign_load=foreign, **values)
            for phase, values in zip(ends, found, strict=True)
        ]


def busy_on(core: int) -> subprocess.Popen[bytes]:
    """Takes one core, as another user of the machine would."""
    process = subprocess.Popen([sys.executable, "-c", SPIN])
    os.sched_setaffinity(process.pid, {core})
    return process


def wait(process: subprocess.Popen[bytes], reached: Callable[[], bool]) -> None:
    """Until something is so, or the run has ended."""
    while process.poll() is None and not reached():
        time.sleep(0.1)


class CpuTimes:
    """What the processes of a run have used of the CPU, as time went by."""

    def __init__(self, launcher: int, folder: Path) -> None:
        self._launcher = launcher
        self._folder = folder
        self._seen: list[tuple[float, int, dict[str, float]]] = []

    def look(self) -> float:
        """Notes it once for every row of metrics; returns the seconds of training so far."""
        rows = rows_of(self._folder)
        if not rows:
            return 0.0
        now = float(rows[-1]["time/time_elapsed"])
        if not self._seen or now > self._seen[-1][0]:
            self._seen.append((now, rows[-1]["updates"], self._used()))
        return now

    def _used(self) -> dict[str, float]:
        """Seconds by kind of role; processes that have gone are left out."""
        found = {"learner": 0.0, "actor": 0.0}
        task = Path(f"/proc/{self._launcher}/task/{self._launcher}/children")
        for pid in task.read_text().split() if task.exists() else []:
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            kind = (
                words[words.index("tianji.engines.worker") + 1]
                if "tianji.engines.worker" in words
                else ""
            )
            if (kind := kind.partition("-")[0]) in found:
                found[kind] += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return found

    def per_update(self, end: float) -> dict[str, float]:
        """Milliseconds over the last seconds before `end`."""
        seen = [one for one in self._seen if end - WINDOW_SECONDS <= one[0] <= end]
        (_, before, first), (_, after, last) = seen[0], seen[-1]
        updates = max(1, after - before)
        used = {kind: 1e3 * (last[kind] - first[kind]) / updates for kind in first}
        return {"learner_cpu": used["learner"], "actors_cpu": used["actor"]}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The rows of metrics so far."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def window(folder: Path, end: float) -> dict[str, Any]:
    """What the last seconds before `end` were like."""
    rows = [
        row for row in rows_of(folder) if end - WINDOW_SECONDS <= row["time/time_elapsed"] <= end
    ]
    first, last = rows[0], rows[-1]
    seconds = last["time/time_elapsed"] - first["time/time_elapsed"]
    updates = last["updates"] - first["updates"]
    stale = last["staleness/mean"] * last["updates"] - first["staleness/mean"] * first["updates"]
    decided = folder / "balance.jsonl"
    lines = decided.read_text().splitlines() if decided.exists() else []
    mean = {key: statistics.fmean(row[key] for row in rows[1:]) for key in MEANS}
    return {
        "production": (last["env_steps"] - first["env_steps"]) / seconds,
        "consumption": mean["balance/consumption"],
        "staleness": stale / max(1, updates),
        "learner_idle": mean["roles/learner-0.0/idle"],
        "awake": mean["balance/awake"],
        "decisions": sum(json.loads(line)["elapsed_s"] <= end for line in lines),
    }


MEANS = ("balance/consumption", "balance/awake", "roles/learner-0.0/idle")


COLUMNS = {  # field: heading, digits and what it is multiplied with
    "production": ("production (steps/s)", 0, 1),
    "consumption": ("consumption (samples/s)", 0, 1),
    "staleness": ("staleness (updates)", 0, 1),
    "learner_idle": ("learner idle (%)", 0, 100),
    "awake": ("actors awake", 1, 1),
    "learner_cpu": ("CPU of the learner (ms/update)", 2, 1),
    "actors_cpu": ("CPU of the actors (ms/update)", 2, 1),
    "decisions": ("decisions", 0, 1),
}


def table(found: list[Measured]) -> str:
    """Medians and ranges, on beside off."""
    header = ["scenario", "rebalance", *(heading for heading, _, _ in COLUMNS.values())]
    lines = []
    for name, phase, rebalance in dict.fromkeys((m.scenario, m.phase, m.rebalance) for m in found):
        some = [m for m in found if (m.scenario, m.phase, m.rebalance) == (name, phase, rebalance)]
        cells = [
            Spread.of(times * getattr(m, what) for m in some).text(digits)
            for what, (_, digits, times) in COLUMNS.items()
        ]
        title = f"{name}, {phase} the change" if phase else name
        lines.append([title, "on" if rebalance else "off", *cells])
    return markdown(header, lines)


def main() -> None:
    """Prints a table, and writes every window of every run."""
    parser = Options(__doc__)
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--repeats", type=count, default=3)
    parser.add_argument(
        "--seconds",
        type=number_from(3),
        default=SETTLED_SECONDS,
        help="before a change",
    )
    given = parser.parse_args()
    found: list[Measured] = []
    for repeat in range(given.repeats):
        for name in given.scenarios:
            for rebalance in (False, True) if repeat % 2 else (True, False):
                found += run(name, rebalance, repeat, given.seconds)
                print(found[-1], file=sys.stderr, flush=True)
    found.sort(key=lambda m: (given.scenarios.index(m.scenario), m.phase == "after", m.rebalance))
    print(f"{len(os.sched_getaffinity(0))} cores, {given.repeats} runs each: median (range)\n")
    print(table(found))
    if said := warning(m.foreign_load for m in found):
        print(f"\n{said}")
    OUT.mkdir(exist_ok=True)
    with (OUT / "rebalance.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(asdict(found[0])))
        writer.writeheader()
        writer.writerows(asdict(measured) for measured in found)


if __name__ == "__main__":
    main()
