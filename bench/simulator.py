"""Compares what the simulator says with what runs of the process engine do.

Costs are measured first, as `tianji plan` does it. From them the simulator predicts each layout;
then the layout is run for some seconds. Environments and updates sleep (`slow.py`), so that two
cores carry many roles: the rows are about who waits for whom, not about how fast a core is. Asked:
production and consumption within 15 %, idle shares within 15 points.

On a machine that others use as well, what a step costs changes from minute to minute. With
`--costs run` the simulator is given what a step, an update and the buffer's work took in the run
itself, and has to say what came of it: that leaves the model to be compared, and not the probe.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from options import BENCH, Options, number_from
from trainings import summary_of

from tianji.config import load
from tianji.job.preflight import try_out
from tianji.strategy.plan.costs import actor_cost_at, learner_cost_at
from tianji.strategy.plan.profile import Profile
from tianji.strategy.probe.probe import probe
from tianji.strategy.simulate.core_layout import Layout
from tianji.strategy.simulate.prediction import Simulated
from tianji.strategy.simulate.simulator import simulate

MOST_ERROR = 0.15


@dataclasses.dataclass(frozen=True)
class Case:
    """One layout of one of the two jobs."""

    config: str
    layout: Layout

    @property
    def settings(self) -> list[str]:
        """What `tianji train` is told beside the config."""
        layout = self.layout
        said = [f"actor_cfg.num={layout.actors}", f"global_cfg.group_num={layout.groups}"]
        said.append("global_cfg.rebalance=False")  # the layout is what is compared
        return said + ["buffer_cfg.cores=1"] * layout.buffer_alone


CASES = (
    *(Case("slow_dqn.py", Layout(actors=n)) for n in (1, 2, 4, 8, 16)),
    *(Case("slow_dqn.py", Layout(actors=n, buffer_alone=True)) for n in (2, 8)),
    Case("slow_dqn.py", Layout(groups=2, actors=3)),
    *(Case("slow_ppo.py", Layout(actors=n)) for n in (1, 2, 4)),
)
QUICK = (CASES[1], CASES[5], CASES[-2])  # one of each kind


@cache
def profile_of(config: str, actors: int) -> Profile:
    """What `tianji plan` measures of a job; one with environments of one step per sleep only."""
    said = load(str(BENCH / config), [f"actor_cfg.num={actors}"])
    return probe(try_out(said), len(os.sched_getaffinity(0)))


def profile_for(case: Case) -> Profile:
    """An on-policy batch depends on the number of actors; a replayed one does not."""
    return profile_of(case.config, case.layout.actors if "ppo" in case.config else 1)


def measured(case: Case, seconds: float) -> tuple[dict[str, float], dict[str, Any]]:
    """One run: rates, idle shares and staleness, and the summary that they are from."""
    config, engine = BENCH / case.config, ["--engine", "process"]
    summary = summary_of(config, case.settings, seconds, *engine, OMP_NUM_THREADS="1")
    idle: dict[str, list[float]] = {}
    for name, role in summary["roles"].items():
        idle.setdefault(name.partition("-")[0], []).append(role["idle"])
    figures = {
        "produced/s": summary["production_per_second"],
        "consumed/s": summary["consumption_per_second"],
        "actors idle": float(np.mean(idle["actor"])),
        "learner idle": float(np.mean(idle["learner"])),
        "staleness": summary["staleness"]["mean"],
    }
    return figures, summary


def as_in(summary: dict[str, Any], profile: Profile) -> Profile:
    """The profile with the costs that a run had, from the busy time of its roles."""
    seconds = summary["produced"] / summary["production_per_second"]
    busy: dict[str, float] = {}
    for name, role in summary["roles"].items():
        kind = name.partition("-")[0]
        busy[kind] = busy.get(kind, 0.0) + seconds * role["busy"]
    actor, work = actor_cost_at(profile, 1), profile.work
    updates, batch = summary["updates"], round(summary["consumed"] / summary["updates"])
    learner = learner_cost_at(profile, 1, batch)
    trajectories = summary["received"] / work.steps
    probed = trajectories * actor.receive_seconds + updates * learner.draw_seconds
    slower = busy["buffer"] / probed
    return dataclasses.replace(
        profile,
        actors=(
            dataclasses.replace(
                actor,
                step_seconds=busy["actor"] / summary["produced"],
                send_seconds=0.0,
                receive_seconds=slower * actor.receive_seconds,
            ),
        ),
        learners=(
            dataclasses.replace(
                learner,
                update_seconds=busy["learner"] / updates,
                draw_seconds=slower * learner.draw_seconds,
                contention=1.0,  # it had these costs beside actors as busy as they were
            ),
        ),
        load_seconds=0.0,  # it is in the steps
    )


def predicted(found: Simulated) -> dict[str, float]:
    """The same of a simulation."""
    return {
        "produced/s": found.production,
        "consumed/s": found.consumption,
        "actors idle": found.idle.actors,
        "learner idle": found.idle.learner,
        "staleness": found.staleness.mean,
    }


def error(name: str, said: float, was: float) -> float:
    """Of rates the relative error, of shares the difference."""
    return said - was if "idle" in name else said / was - 1


def main() -> int:
    parser = Options(__doc__)
    parser.add_argument("--seconds", type=number_from(2), default=10.0, help="of each run")
    parser.add_argument("--quick", action="store_true", help="three of the layouts")
    parser.add_argument("--costs", choices=["probe", "run"], default="probe")
    parser.add_argument("--out", type=Path, help="a JSON file for all numbers")
    options = parser.parse_args()
    rows, worst = [], 0.0
    print("simulated costs (sleeps); said by the simulator / measured, error\n")
    print(f"{'job':9}{'layout':22}{'produced/s':>24}{'consumed/s':>24}", end="")
    print(f"{'actors idle %':>22}{'learner idle %':>22}{'staleness':>16}")
    cases = QUICK if options.quick else CASES
    for case in cases:
        layout = dataclasses.replace(case.layout, envs=1)
        was, summary = measured(case, options.seconds)
        profile = profile_for(case)
        if options.costs == "run":
            profile = as_in(summary, profile)
        said = predicted(simulate(profile, layout))
        errors = {name: error(name, said[name], was[name]) for name in said if name != "staleness"}
        worst = max(worst, *(abs(each) for each in errors.values()))
        rows.append({"case": dataclasses.asdict(case), "said": said, "was": was, "error": errors})
        print(_line(case, said, was, errors), flush=True)
    print(f"\nworst error {100 * worst:.1f} % (asked: <= {100 * MOST_ERROR:.0f})")
    if options.out is not None:
        plain = {f"{c.config} {c.layout.actors}": profile_for(c).to_json() for c in cases}
        options.out.write_text(json.dumps({"profiles": plain, "rows": rows}, indent=1) + "\n")
    return 0 if worst <= MOST_ERROR else 1


def _line(
    case: Case, said: dict[str, float], was: dict[str, float], errors: dict[str, float]
) -> str:
    layout = case.layout
    words = f"G{layout.groups} L1 A{layout.actors}" + " buffer alone" * layout.buffer_alone
    cells = f"{case.config[5:8]:9}{words:22}"
    for name in ("produced/s", "consumed/s"):
        cells += f"{f'{said[name]:,.0f} / {was[name]:,.0f}':>17}{100 * errors[name]:+6.1f}%"
    for name in ("actors idle", "learner idle"):
        both = f"{100 * said[name]:.1f} / {100 * was[name]:.1f}"
        cells += f"{both:>15}{100 * errors[name]:+7.1f}"
    return cells + f"{said['staleness']:>8.1f} / {was['staleness']:.1f}"


if __name__ == "__main__":
    sys.exit(main())
