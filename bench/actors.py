"""Figure 4c for CartPole: time of PPO to a mean return of 300 against the number of actors.

Ours beside Stable-Baselines3 and RLlib, where `python bench/peers.py --peers sb3 rllib` has
installed them, with the same network and the values of Table 2: a batch is one rollout of 512 steps
from each actor. By default a step takes half a millisecond that is slept (simulated), so that
actors need no core each; `--real` takes CartPole as it is. The clock runs from when training can
begin.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterator
from typing import Any

from experiment import Trial, conduct, kind_of, machine, parser
from figures import Panel, Series
from measures import Spread, ratio_interval, shown
from options import BENCH, count, number_from
from peers import RLLIB_VENV, SB3_VENV, installed, python_of
from tables import markdown, spread, values, where
from trainings import JOBS, START_SECONDS, Row, busy_share, execute, peer_line, train

SYSTEMS = ("ours", "sb3", "rllib")
PEERS = {
    "sb3": (SB3_VENV, ["sb3_ppo.py", "--settings", "table2"]),
    "rllib": (RLLIB_VENV, ["rllib_ppo.py"]),
}
STEP_SECONDS = 0.0005
COLUMNS = (
    "kind", "system", "actors", "seed", "final_seconds", "env_steps", "steps_per_second",
    "foreign_load",
)  # fmt: skip


def run_ours(actors: int, step_seconds: float, seed: int, seconds: float) -> Row:
    """One run of ours."""
    settings = {"actor_cfg.num": actors}
    if step_seconds:
        settings["environment.kwargs"] = f"dict(step_seconds={step_seconds})"
    else:
        settings |= {"environment.gym_name": "CartPole-v1", "environment.kwargs": "dict()"}
    found = train(JOBS / "ppo_table2.py", settings, seed, seconds)
    return found | {"steps_per_second": found["production"]}


def run_peer(system: str, actors: int, step_seconds: float, seed: int, seconds: float) -> Row:
    """One run of another system."""
    foreign = busy_share()
    folder, (script, *words) = PEERS[system]
    words = [str(python_of(folder)), str(BENCH / script), *words, "--envs", str(actors)]
    words += ["--step-seconds", str(step_seconds), "--seed", str(seed)]
    stdout, _ = execute([*words, "--max-seconds", str(seconds)], seconds + START_SECONDS)
    line = peer_line(stdout)
    return {
        "final_seconds": line["seconds_from_training_start"],
        "env_steps": line["env_steps"],
        "steps_per_second": line["steps_per_second"],
        "foreign_load": foreign,
    }


def run(system: str, *about: Any) -> Row:
    """One run of any of them."""
    return run_ours(*about) if system == "ours" else run_peer(system, *about)


def present(systems: list[str]) -> list[str]:
    """Those that can run here; the others are named."""
    found = []
    for system in systems:
        if system == "ours" or installed(PEERS[system][0]):
            found.append(system)
        else:
            script = f"python bench/peers.py --peers {system}"
            print(f"{system} is left out, it is not installed: {script}", flush=True)
    return found


def speed_up(rows: list[Row], system: str, actors: int) -> Spread | None:
    """How many times as long the other took, with its interval."""
    theirs = [r["final_seconds"] for r in where(rows, system=system, actors=actors)]
    ours = [r["final_seconds"] for r in where(rows, system="ours", actors=actors)]
    return ratio_interval(theirs, ours) if theirs and ours else None


def table(rows: list[Row]) -> str:
    """A line for each number of actors, and the best ratio below."""
    systems = values(rows, "system")
    others = [system for system in systems if system != "ours"]
    lines, best = [], {}
    for n in sorted({row["actors"] for row in rows}):
        runs = [where(rows, system=system, actors=n) for system in systems]
        line = [str(n), *(spread(r, "final_seconds").text(1) if r else "-" for r in runs)]
        for other in others:
            ratio = speed_up(rows, other, n)
            line.append("-" if ratio is None else ratio.text(2).replace("never", "no bound"))
            if ratio is not None and math.isfinite(ratio.middle):
                best[other] = max(best.get(other, (Spread(0, 0, 0), 0)), (ratio, n), key=_middle)
        lines.append(line)
    header = ["actors", *(f"{s} s" for s in systems), *(f"{s} / ours (95 %)" for s in others)]
    title = f"Figure 4c, PPO on CartPole to 300, Table 2, {machine(rows[0]['kind'])}"
    said = [
        f"best against {other}: {shown(r.middle, 2)} times as fast with {n} actors, 95 % interval "
        f"{shown(r.low, 2)}-{shown(r.high, 2)}"
        for other, (r, n) in best.items()
    ]
    return "\n\n".join([title, markdown(header, lines), *said])


def _middle(found: tuple[Spread, int]) -> float:
    return found[0].middle


def panels(rows: list[Row]) -> list[Panel]:
    """Final time and steps per second of every system."""
    kind, drawn = rows[0]["kind"], []
    for title, column, unit in (
        ("final time", "final_seconds", "seconds to 300"),
        ("throughput", "steps_per_second", "steps per second"),
    ):
        panel = Panel(f"Figure 4c, CartPole: {title} ({kind})", "actors", unit)
        for system in values(rows, "system"):
            runs = where(rows, system=system)
            xs = sorted({row["actors"] for row in runs})
            points = [(x, spread(where(runs, actors=x), column)) for x in xs]
            panel.series.append(Series(system, points))
        drawn.append(panel)
    return drawn


def actors_of(given: argparse.Namespace) -> list[int]:
    """Those given; real ones as far as the cores go."""
    cores = len(os.sched_getaffinity(0))
    if given.actors:
        return list(given.actors)
    if given.quick:
        return [1, 4]
    return [n for n in (1, 2, 4, 8, 16) if not given.real or n <= cores]


def main() -> int:
    options = parser("actors", __doc__, seconds=120)
    options.add_argument("--real", action="store_true", help="CartPole as it is")
    options.add_argument("--actors", type=count, nargs="+", help="default: 1 2 4 8 16")
    options.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    options.add_argument("--step-seconds", type=number_from(0), default=STEP_SECONDS)
    given = options.parse_args()
    cost, systems = 0.0 if given.real else given.step_seconds, present(given.systems)

    def trials(seed: int) -> Iterator[Trial]:
        for n in actors_of(given):
            for system in systems:
                row = {"kind": kind_of(given.real), "system": system, "actors": n}
                yield row, run, (system, n, cost, seed, given.seconds)

    return conduct("actors", COLUMNS, given, trials, table, panels)


if __name__ == "__main__":
    sys.exit(main())
