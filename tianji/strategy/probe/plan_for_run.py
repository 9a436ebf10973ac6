"""The plan that a run follows: read from a file, kept from before, or made now."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tianji.config import Config, load
from tianji.config.keywords import as_overrides
from tianji.config.section import nearest, shown
from tianji.core import terminal
from tianji.core.errors import TianJiError
from tianji.core.wording import count_of
from tianji.machine import hostfile as hostfiles
from tianji.machine import mpirun, resources
from tianji.machine.placement import n_ranks
from tianji.strategy.plan import plan_file, solver
from tianji.strategy.plan.plan_file import Plan
from tianji.strategy.plan.plan_text import disturbed, roles_in
from tianji.strategy.plan.profile import Work
from tianji.strategy.plan.same_job import flat
from tianji.strategy.plan.solver import OPTIONS, Wish
from tianji.strategy.probe.fixed_keys import KEYS, WISHED, wish_of
from tianji.strategy.probe.planner import GROUP_UPDATES, make, most_groups, tried
from tianji.strategy.probe.probe import probe
from tianji.strategy.probe.stopping import stoppable
from tianji.strategy.probe.this_machine import this_machine

AUTO = "auto"  # instead of a plan's file: make one
WANTED = f"want {AUTO}, to plan first, or a file: make one with tianji plan CONFIG"


def for_run(
    plan: str | Path,
    file: str | Path,
    given: list[str],
    folder: Path | None,
    engine: str | None,
    hostfile: Path | None = None,
    quiet: bool = True,
) -> Plan:
    """The plan that a run is to follow: read, or made now; one that does not fit is refused.

    `hostfile` names the machines of a run that is about to be spread over several. Unless `quiet`,
    a terminal shows what is being measured.
    """
    config = load(file, given)
    _refuse_one_process(config, engine)
    spread = _spread(hostfile)
    if not str(plan):
        raise TianJiError(f"--plan: the name is empty: {WANTED}")
    if str(plan) != AUTO:
        chosen, source = _read(Path(plan)), str(plan)
    elif folder is not None and (kept := plan_file.of_run(folder)) is not None:
        chosen, source = kept, f"{folder}/{plan_file.NAME}"  # a run that goes on keeps its plan
    else:
        chosen, source = _made_now(config, spread, file, given, engine, quiet), "--plan auto"
    followed = _following(chosen, source, file, given)
    machine = this_machine(spread.cores, followed.parallel.learner_cfg.device)
    warnings = plan_file.check(chosen, followed, machine, source, spread.hosts)
    plan_file.refuse_other_batch(chosen, config, source)
    if engine != "mpi" and mpirun.inside() is None:
        _refuse_without_cores(chosen, source)
    for warning in (*warnings, *_about_groups(chosen, followed, source)):
        terminal.say("note", warning)
    return chosen


def _read(path: Path) -> Plan:
    """The plan in the file that `--plan` names; says what is wanted where there is none."""
    if (path / plan_file.NAME).is_file():
        raise TianJiError(
            f"--plan {path}: this is the folder of a run: name its plan, {path / plan_file.NAME}"
        )
    if path.is_dir():
        raise TianJiError(f"--plan {path}: this is a folder: {WANTED}")
    if not path.exists():
        raise TianJiError(f"--plan {path}: there is no such file{_meant(path)}: {WANTED}")
    return plan_file.read(path)


def _meant(path: Path) -> str:
    """The nearest word or plan, if one is near; a file may be anywhere, so the others are not."""
    plans = [str(near) for near in path.parent.glob("*.json") if plan_file.is_plan(near)]
    hint = nearest(str(path), [AUTO, *plans])
    return f" ({hint[0].lower()}{hint[1:]})" if hint.startswith("Did") else ""


def _about_groups(plan: Plan, config: Config, source: str) -> list[str]:
    """A warning where a run is too short for the groups that a plan was made with."""
    groups, hosts = plan.split.groups, plan.split.hosts
    enough = max(hosts, most_groups(config, plan.profile.work) // hosts * hosts)  # each has as many
    if groups <= enough:
        return []
    return [
        f"{source} has {groups} groups, of which each makes fewer than {GROUP_UPDATES} updates of "
        f"its share of exp.train_steps={config.exp.train_steps:,}: raise that, or make a plan with "
        f"--groups {enough}"
    ]


def is_made_now(plan: str | Path, folder: Path | None) -> bool:
    """Whether `for_run` would measure, and not read what is there."""
    return str(plan) == AUTO and (folder is None or not (folder / plan_file.NAME).is_file())


def lacking(plan: Plan, hosts: int = 1) -> tuple[int, int] | None:
    """Cores that a plan needs of this machine, one of `hosts`, and that it offers; None: enough.

    What a container does not pay for is not offered: its processes would be stopped together.
    """
    split, work = plan.split, plan.profile.work
    needed = split.cores(work) if hosts == 1 else split.cores_per_host(work)
    offered = resources.usable_here()
    return (needed, offered) if needed > offered and not split.one_core else None


def _refuse_without_cores(plan: Plan, source: str) -> None:
    """Raises where all processes would be on this machine, each on cores that it does not have."""
    if (found := lacking(plan)) is None:
        return
    hosts = plan.split.hosts
    if hosts > 1:
        each = plan.split.cores_per_host(plan.profile.work)
        raise TianJiError(
            f"{source}: this plan is for {hosts} hosts with {count_of(each, 'core')} each, and "
            "without --engine mpi a run has this machine alone: add --engine mpi --hostfile FILE, "
            "which names them, or make a plan for this machine with tianji plan CONFIG"
        )
    raise TianJiError(
        f"{source}: this plan is for {found[0]} cores and this machine offers {found[1]}: "
        "train with it where there are as many, make a plan for this machine with tianji plan "
        "CONFIG, or leave --plan out"
    )


def _refuse_one_process(config: Config, engine: str | None) -> None:
    """Raises where there is nothing to split: all roles would live in one process."""
    by_config = engine is None and mpirun.inside() is None
    if engine == "local" or (by_config and not config.parallel.global_cfg.use_comm_parallel):
        raise TianJiError(
            "--plan: a plan splits the cores among processes, and engine local (or "
            "global_cfg.use_comm_parallel=False) has only one: leave one of the two out"
        )


@dataclass(frozen=True)
class _Spread:
    """What a run may use: some hosts, and of each as many cores as the smallest has."""

    cores: int
    hosts: int | None = 1  # None: that is only known when all ranks have met
    places: int | None = None  # for processes, on all hosts together; None: no limit


def _spread(hostfile: Path | None) -> _Spread:
    """This machine, or those of a hostfile as far as they are like it."""
    cores = resources.usable_here()
    if hostfile is None:
        return _Spread(cores, 1 if mpirun.inside() in (None, (0, 1)) else None)
    places = [cores if n is None else n for n in hostfiles.read(hostfile).values()]
    return _Spread(min(cores, *places), len(places), sum(places))


def _made_now(
    config: Config,
    spread: _Spread,
    file: str | Path,
    given: list[str],
    engine: str | None,
    quiet: bool,
) -> Plan:
    """A plan by what is measured now; one whose processes have places on the hosts."""
    hosts = _known_hosts(spread, engine)
    try:
        wish = wish_of(file, given, spread.cores, hosts, resources.free_bytes())
    except TianJiError as error:
        raise TianJiError(f"--plan auto: {error}") from None
    least = {"global_cfg.group_num": hosts, "actor_cfg.num": 1, "buffer_cfg.cores": None}
    needed = n_ranks(load(file, [*as_overrides(least), *given]))
    if spread.places is not None and needed > spread.places:
        raise _too_few_places(spread.places, needed)
    say = terminal.StatusLine(quiet, only_live=True)
    try:
        with stoppable():
            job = tried(config, lambda work: _refuse_impossible(work, wish))
            terminal.say("note", "measuring this job to plan it, for some 10 to 20 s")
            profile = probe(job, spread.cores, say)
    finally:
        say.over()
    plan = make(config, profile, wish).plan
    while spread.places is not None:
        needed = n_ranks(load(file, [*given, *as_overrides(plan.overrides)]))
        if needed <= spread.places:
            break
        wish = replace(wish, cores=wish.cores - 1)
        try:
            plan = make(config, profile, wish).plan
        except TianJiError:  # there is no smaller one
            raise _too_few_places(spread.places, needed) from None
    terminal.say("plan", roles_in(plan.split) + _caution(plan))
    return plan


def _caution(plan: Plan) -> str:
    """What others at work, several groups (a host has one at least) and more environments cost."""
    split, work, words = plan.split, plan.profile.work, ""
    if plan.profile.was_disturbed:
        words += f". Others {disturbed(plan.profile)}"
    if split.groups > 1:
        words += (
            ". Each group learns from its own samples, so a result takes more steps than with one "
            "group"
        )
        if split.groups > split.hosts:
            instead = f"global_cfg.group_num={split.hosts}"
            words += f": where that matters, compare with --set {instead}"
    if not work.on_policy and split.actors * split.envs > work.envs:
        words += (
            f". Its environments are more than the configuration has ({work.envs} in a group), and "
            "a result takes more steps with them: where that matters, compare with --set "
            f"actor_cfg.envs={max(1, work.envs // split.actors)}"
        )
    return words


def _refuse_impossible(work: Work, wish: Wish) -> None:
    try:
        solver.refuse_impossible(work, wish, KEYS)
    except TianJiError as error:
        raise TianJiError(f"--plan auto: {error}") from None


def _too_few_places(places: int, needed: int) -> TianJiError:
    return TianJiError(
        f"--plan auto: the hostfile has {count_of(places, 'place')}, and even the smallest plan "
        f"has {needed} processes, the launcher among them: give its hosts more `slots`"
    )


def _known_hosts(spread: _Spread, engine: str | None) -> int:
    """How many hosts to plan for; refuses to guess it."""
    first = "make the plan first, tianji plan CONFIG --hosts N --cores M, and use --plan FILE"
    if spread.hosts is None:
        raise TianJiError(
            "--plan auto: mpirun has started the ranks, and how many there should be follows from "
            f"the plan: {first}; or let tianji start them: tianji train CONFIG --engine mpi "
            "--plan auto"
        )
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "1")
    if engine == "mpi" and spread.places is None and nodes != "1":
        raise TianJiError(
            f"--plan auto: this job of Slurm's has {nodes} nodes, and only one of them could be "
            f"measured and planned for: {first}; or name the nodes with --hostfile"
        )
    return spread.hosts


def _following(plan: Plan, source: str, file: str | Path, given: list[str]) -> Config:
    """The configuration with the keys of the plan; refuses options that say otherwise."""
    own = as_overrides(plan.overrides)
    config = load(file, [*given, *own])
    otherwise = load(file, [*own, *given])
    if otherwise != config:
        raise _contradiction(plan, source, flat(config), flat(otherwise))
    return config


def _contradiction(
    plan: Plan, source: str, planned: dict[str, Any], told: dict[str, Any]
) -> TianJiError:
    """Names the keys of a plan that a run was told other values of."""
    differing = [key for key in {**planned, **told} if planned.get(key) != told.get(key)]
    keys = [key for key in differing if key in plan.overrides] or differing
    says, others = (
        ", ".join(f"{key}={shown(found.get(key))}" for key in keys) for found in (planned, told)
    )
    named = [(name, key) for name, key in WISHED.items() if key in keys and told[key] is not None]
    options = [OPTIONS[name].format(told[key]) for name, key in named]
    if plan.profile.work.on_policy:  # with other environments it is another job
        options = [f"--set {key}={told[key]}" for _, key in named]
    fixed = f", or make a plan with tianji plan CONFIG {' '.join(options)}" if options else ""
    return TianJiError(
        f"{source} says {says}, and other options say {others}: leave "
        f"{'that' if len(keys) == 1 else 'those'} out{fixed}"
    )


def beside(plan: Plan, file: str | Path, given: list[str]) -> list[str]:
    """What a run must be given beside a plan that was made with `given`.

    The plan has an answer of its own to some of it, as to `actor_cfg.num`; to repeat that would be
    to contradict the plan.
    """
    own = as_overrides(plan.overrides)
    return [word for word in given if load(file, [word, *own]) == load(file, [*own, word])]
