"""The plan that a run follows: read from a file, kept from before, or made now."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from tianji.config import Config, load
from tianji.config.keywords import as_overrides
from tianji.config.section import shown
from tianji.core import terminal
from tianji.core.errors import TianJiError
from tianji.core.wording import count_of
from tianji.machine import hostfile as hostfiles
from tianji.machine import mpirun, resources
from tianji.machine.placement import n_ranks
from tianji.strategy.plan import plan_file, plan_text, solver
from tianji.strategy.plan.plan_file import Plan
from tianji.strategy.plan.profile import Work
from tianji.strategy.plan.same_job import flat
from tianji.strategy.probe import planner
from tianji.strategy.probe.fixed_keys import wish_of
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
    config, alone = load(file, given), mpirun.inside() is None
    in_one = engine is None and alone and not config.parallel.global_cfg.use_comm_parallel
    if engine == "local" or in_one:
        raise TianJiError(
            "--plan: a plan splits the cores among processes, and engine local (or "
            "global_cfg.use_comm_parallel=False) has only one: leave one of the two out"
        )
    spread = _spread(hostfile)
    if str(plan) != AUTO:
        chosen, source = _read(str(plan)), str(plan)
    elif folder is not None and (kept := plan_file.of_run(folder)) is not None:
        chosen, source = kept, f"{folder}/{plan_file.NAME}"  # a run that goes on keeps its plan
    else:
        source = "--plan auto"
        try:
            chosen = _made_now(config, spread, file, given, engine, quiet)
        except TianJiError as error:
            raise TianJiError(f"{source}: {error}") from error
    followed = _following(chosen, source, file, given)
    machine = this_machine(spread.cores, followed)
    warnings = plan_file.check(chosen, followed, machine, source, spread.hosts)
    plan_file.refuse_other_batch(chosen, config, source)
    if engine != "mpi" and alone:
        _refuse_without_cores(chosen, source)
    for warning in (*warnings, *_about_groups(chosen, followed, source)):
        terminal.say("note", warning)
    return chosen


def _read(name: str) -> Plan:
    """The plan in the file that `--plan` names; says what is wanted where there is none."""
    path = Path(name)
    if (path / plan_file.NAME).is_file() and name:
        raise TianJiError(
            f"--plan {path}: this is the folder of a run: name its plan, {path / plan_file.NAME}"
        )
    if not name or path.is_dir() or not path.exists():
        raise TianJiError(f"--plan {name}: there is no such file: {WANTED}")
    if not path.is_file():
        raise TianJiError(f"--plan {name}: this is a pipe or a device, not a file: {WANTED}")
    return plan_file.read(path)


def _about_groups(plan: Plan, config: Config, source: str) -> list[str]:
    """A warning where a run is too short for the groups that a plan was made with."""
    groups, hosts = plan.split.groups, plan.split.hosts
    most = planner.most_groups(config, plan.profile.work)
    enough = max(hosts, most // hosts * hosts)  # each has as many
    if groups <= enough:
        return []
    return [
        f"{source} has {groups} groups, of which each makes fewer than {planner.GROUP_UPDATES} "
        f"updates of its share of exp.train_steps={config.exp.train_steps:,}: raise that, or make "
        f"a plan with --groups {enough}"
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
    hosts, each = plan.split.hosts, plan.split.cores_per_host(plan.profile.work)
    where = f"{hosts} hosts with {each} cores each" if hosts > 1 else f"{found[0]} cores"
    there = "add --engine mpi --hostfile FILE" if hosts > 1 else "train with it where there are"
    raise TianJiError(
        f"{source}: this plan is for {where} and this machine offers {found[1]}: {there}, make a "
        "plan for this machine with tianji plan CONFIG, or leave --plan out"
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
    wish = wish_of(file, given, spread.cores, hosts, resources.free_bytes())
    least = {"global_cfg.group_num": hosts, "actor_cfg.num": 1, "buffer_cfg.cores": None}
    _refuse_places(spread, n_ranks(load(file, [*as_overrides(least), *given])))
    say = terminal.StatusLine(quiet, only_live=True)

    def refuse(work: Work) -> None:
        solver.refuse_impossible(work, wish)
        terminal.say("note", "measuring this job to plan it, for some 10 to 20 s")

    try:
        _, profile = planner.measure(file, given, spread.cores, say=say, refuse=refuse)
    finally:
        say.over()
    plan = planner.make(config, profile, wish).plan
    while spread.places is not None:
        needed = n_ranks(load(file, [*given, *as_overrides(plan.overrides)]))
        if needed <= spread.places:
            break
        wish = replace(wish, cores=wish.cores - 1)
        try:
            plan = planner.make(config, profile, wish).plan
        except TianJiError:  # there is no smaller one
            _refuse_places(spread, needed)
    terminal.say("plan", plan_text.roles_in(plan.split))
    for name, words in plan_text.cautions(profile, plan.split):
        terminal.say("note", f"{name}: {words}")
    return plan


def _refuse_places(spread: _Spread, needed: int) -> None:
    """Raises where so many processes have no places on the hosts."""
    if spread.places is not None and needed > spread.places:
        raise TianJiError(
            f"the hostfile has {count_of(spread.places, 'place')}, and even the smallest plan has "
            f"{needed} processes, the launcher among them: give its hosts more `slots`"
        )


def _known_hosts(spread: _Spread, engine: str | None) -> int:
    """How many hosts to plan for; refuses to guess it."""
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "1")
    unnamed = engine == "mpi" and spread.places is None and nodes != "1"
    if spread.hosts is None or unnamed:
        why = "mpirun has started the ranks already" if not unnamed else f"Slurm has {nodes} nodes"
        raise TianJiError(
            f"{why}, and this machine alone could be measured: make the plan first, tianji plan "
            "CONFIG --hosts N --cores M, and use --plan FILE; or name the machines with --hostfile "
            "and let tianji train CONFIG --engine mpi start the ranks"
        )
    return spread.hosts


def _following(plan: Plan, source: str, file: str | Path, given: list[str]) -> Config:
    """The configuration with the keys of the plan; refuses options that say otherwise."""
    own = as_overrides(plan.overrides)
    config, otherwise = load(file, [*given, *own]), load(file, [*own, *given])
    if otherwise == config:
        return config
    planned, told = flat(config), flat(otherwise)
    differing = [key for key in {**planned, **told} if planned.get(key) != told.get(key)]
    keys = [key for key in differing if key in plan.overrides] or differing
    says, others = (
        ", ".join(f"{key}={shown(found.get(key))}" for key in keys) for found in (planned, told)
    )
    raise TianJiError(
        f"{source} says {says}, and other options say {others}: leave those out, or make a plan "
        "with them: tianji plan CONFIG --set KEY=VALUE"
    )


def beside(plan: Plan, file: str | Path, given: list[str]) -> list[str]:
    """What a run must be given beside a plan that was made with `given`.

    The plan has an answer of its own to some of it, as to `actor_cfg.num`; to repeat that would be
    to contradict the plan.
    """
    own = as_overrides(plan.overrides)
    return [word for word in given if load(file, [word, *own]) == load(file, [*own, word])]
