"""From a configuration to a plan: probe, solve, and say what it is worth."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tianji import mpirun, resources
from tianji.config import Config, load
from tianji.config.keywords import as_overrides
from tianji.errors import TianJiError
from tianji.planning import planfile
from tianji.planning.digest import digest_of
from tianji.planning.model import predict
from tianji.planning.planfile import Plan
from tianji.planning.profile import Profile
from tianji.planning.solver import Choice, Wish, solve
from tianji.planning.split import Split
from tianji.probing.machine import this_machine
from tianji.probing.probe import MOST_SECONDS, Say, probe

AUTO = "auto"  # instead of a plan's file: make one


@dataclass(frozen=True)
class Planned:
    """A plan, with what it was chosen from."""

    plan: Plan
    choices: list[Choice]  # the plan's own first
    configured: Choice | None  # the split that the configuration itself asks for


def measure(
    file: str | Path,
    overrides: list[str],
    cores: int,
    settings: Mapping[str, Any] | None = None,
    say: Say = lambda _: None,
    seconds: float = MOST_SECONDS,
    profile: Profile | None = None,
) -> tuple[Config, Profile]:
    """What `file` describes, and what it costs; `settings` are keys that go into the plan.

    With a `profile` nothing is measured, and it must be of the same configuration.
    """
    config = load(file, [*overrides, *as_overrides(settings or {}, "plan")])
    if profile is None:
        return config, probe(config, cores, say, seconds)
    if profile.work.digest != digest_of(config):
        raise TianJiError(
            f"--profile: these costs are of another configuration ({profile.work.name}, or other "
            "values of its keys, as --batch-scale and --gpu set them): leave --profile out, and "
            f"{config.name} is measured"
        )
    return config, profile


def make(
    config: Config, profile: Profile, wish: Wish, settings: Mapping[str, Any] | None = None
) -> Planned:
    """Plans a job by its profile."""
    choices = solve(profile, wish)
    own = {key: value for key, value in (settings or {}).items() if key != "actor_cfg.envs"}
    plan = Plan(profile, choices[0].split, choices[0].prediction, own)
    return Planned(plan, choices, _configured(config, profile, wish))


def _configured(config: Config, profile: Profile, wish: Wish) -> Choice | None:
    """What the configuration itself would do; None if the cores do not suffice for it."""
    parallel, work = config.parallel, profile.work
    split = Split(
        config.n_groups,
        parallel.learner_cfg.cores or 1,
        parallel.actor_cfg.num,
        parallel.actor_cfg.envs,
        work.batch,
        work.pool,
        config.n_learners,
        buffer_alone=parallel.buffer_cfg.cores is not None,
    )
    if split.cores(work.alternates) > wish.cores * wish.hosts:
        return None
    return Choice(split, predict(profile, split))


def for_run(
    plan: str | Path, file: str | Path, given: list[str], folder: Path | None, engine: str | None
) -> Plan:
    """The plan that a run is to follow: read, or made now; one that does not fit is refused.

    A run that goes on keeps the plan it began with.
    """
    here = load(file, given).parallel.global_cfg.use_comm_parallel is False
    if engine == "local" or (engine is None and here and mpirun.inside() is None):
        raise TianJiError(
            "--plan: a plan splits the cores among processes, and engine local (or "
            "global_cfg.use_comm_parallel=False) has only one: leave one of the two out"
        )
    kept = None if folder is None else planfile.of_run(folder)
    if str(plan) != AUTO:
        chosen, source = planfile.read(Path(plan)), str(plan)
    elif kept is not None:
        chosen, source = kept, f"{folder}/{planfile.NAME}"
    else:
        print("note: measuring this job to plan it, for some 10 to 20 s", file=sys.stderr)
        wish = Wish(resources.usable_here(), memory_bytes=resources.free_bytes())
        chosen, source = make(*measure(file, given, wish.cores), wish).plan, "--plan auto"
    own = as_overrides(chosen.overrides)
    config = load(file, [*given, *own])
    if load(file, [*own, *given]) != config:
        raise TianJiError(
            f"{source} says {', '.join(own)}, and other options say otherwise: leave those out, or "
            "make a plan with them fixed (tianji plan --actors, --envs, --groups, --learner-cores)"
        )
    gpu = config.parallel.learner_cfg.device
    machine = this_machine(resources.usable_here(), None if gpu == "cpu" else gpu)
    for warning in planfile.check(chosen, config, machine, source):
        print(f"note: {warning}", file=sys.stderr)
    return chosen
