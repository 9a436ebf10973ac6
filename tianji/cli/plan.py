"""`tianji plan CONFIG`: measures a job, and says how to split the cores among its roles."""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tianji.cli.common import add_overrides
from tianji.core import terminal
from tianji.core.columns import command, wrapped
from tianji.core.errors import TianJiError
from tianji.core.wording import count_of
from tianji.strategy.probe import MOST_SECONDS

if TYPE_CHECKING:
    from tianji.config import Config
    from tianji.strategy.plan.plan_file import Plan
    from tianji.strategy.plan.profile import Profile, Work
    from tianji.strategy.plan.solver import Wish
    from tianji.strategy.probe.planner import Planned

HOSTFILE = "hosts.txt"  # in the command that trains on several machines


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `plan`."""
    parser.add_argument("config", metavar="CONFIG", help="configuration file of the run")
    for option, metavar, purpose in (
        ("--cores", "M", "cores of each machine (default: all that this one offers)"),
        ("--hosts", "N", "machines like this one (default: 1)"),
        ("--groups", "G", "groups (default: as many as make it fastest)"),
        ("--actors", "N", "actors of each group (default: as many as the learner can take)"),
        (
            "--envs",
            "E",
            "environments of each actor (default: the configuration's, or what is 5 %% faster)",
        ),
        ("--learner-cores", "C", "cores of each learner (default: what makes it fastest)"),
        ("--batch-scale", "K", "multiply batch, pool and minibatch by K: freshness is kept"),
    ):
        parser.add_argument(option, type=_count, metavar=metavar, help=purpose)
    parser.add_argument(
        "--lr-rule",
        choices=["none", "linear", "sqrt"],
        help="the learning rate when the batch is K times as large: the same, K times as large, or "
        "only the root of K times, which suits Adam (default: sqrt)",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        metavar="S",
        help=f"about how long to measure at most (default: {MOST_SECONDS:g})",
    )
    parser.add_argument(
        "--buffer-alone",
        action="store_true",
        help="give the buffer a core of its own (default: if that makes it faster)",
    )
    parser.add_argument("--gpu", action="store_true", help="measure the learner on the GPU")
    add_overrides(parser, "override a key of the configuration, as in hyp.lr=0.001")
    parser.add_argument(
        "--profile", type=Path, metavar="FILE", help="take the costs of an earlier plan, and "
        "measure nothing"
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="file to write (default: CONFIG's name.plan.json)"
    )
    parser.add_argument("--quiet", action="store_true", help="show nothing while measuring")
    from tianji.strategy.simulate import simulate_options

    simulate_options.add_arguments(parser.add_argument_group("options of --simulate"), _count)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"want a whole number of at least 1, got {text}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 1.0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"want a number of at least 1, got {text!r}")
    return seconds


def run(options: argparse.Namespace) -> int:
    """Measures, plans, prints and writes."""
    from tianji.config import load
    from tianji.strategy.plan import plan_file
    from tianji.strategy.probe import larger_batch, planner
    from tianji.strategy.simulate import simulate_options

    _refuse_idle_options(options)
    simulate_options.check(options)
    out = _out(options)
    overrides = [*options.overrides, *(["learner_cfg.device='cuda'"] if options.gpu else [])]
    config = load(options.config, overrides)
    rule = options.lr_rule or larger_batch.DEFAULT
    scale = options.batch_scale or 1
    settings = larger_batch.scaling_keys(config, scale, rule)
    if options.gpu:
        settings["learner_cfg.device"] = "cuda"
    profile, told, wish = _profile(options.profile), *_wishes(options)
    began = time.monotonic()
    say = terminal.StatusLine(options.quiet or profile is not None)
    try:
        planned_for, found = planner.measure(
            options.config,
            overrides,
            wish.cores,
            settings,
            say=say,
            seconds=options.seconds or MOST_SECONDS,
            profile=profile,
            refuse=lambda work: _refuse_impossible(work, told, wish, options),
        )
    finally:
        say.over()
    measured = f"measured in {time.monotonic() - began:.0f} s" if profile is None else "as measured"
    where = f"{count_of(found.machine.cores, 'core')} ({found.machine.cpu})"
    if options.simulate:
        said = [f"{config.name}, {measured} on {where}"]
        if options.out is not None:
            plan_file.write(planner.make(planned_for, found, wish, settings, scale).plan, out)
            said.append(f"{out}: the costs, and a plan for {_words_of(wish)} that leaves all open")
        return simulate_options.run(found, options, said)
    planned = planner.make(planned_for, found, wish, settings, scale)
    plan_file.write(planned.plan, out)  # first: who reads what is printed may go away
    _print(f"{config.name} for {_words_of(wish)}, {measured} on {where}")
    _show(planned, planned_for, wish, _changed(options))
    print(_what_next(options, planned.plan, out, terminal.width()))
    return 0


def _show(planned: Planned, config: Config, wish: Wish, changed: list[str]) -> None:
    """The plan, what it was chosen from, and the notes about it."""
    from tianji.strategy.plan import plan_text

    profile, width = planned.plan.profile, terminal.width()
    fused, choices = config.parallel.global_cfg.use_group_parallel, planned.choices
    own = planned.configured
    print(plan_text.describe(profile, choices, own, width, wish.cores, changed, fused), end="\n\n")
    for note in (planned.note, _about_memory(wish, planned.plan)):
        if note is not None:
            _print(note, "note: ")


def _print(text: str, first: str = "") -> None:
    """A paragraph, and the blank line after it."""
    lines = wrapped(text, terminal.width(), len(first) or 2, first)
    print("\n".join(lines), end="\n\n")


def _about_memory(wish: Wish, plan: Plan) -> str | None:
    """That nobody has looked whether the plan fits; None: that was done."""
    if wish.memory_bytes is not None:
        return None
    needed = plan.prediction.memory_bytes / wish.hosts / 2**20
    return (
        "what such a machine has of memory is not known here: nobody has checked that the "
        f"{needed:,.0f} MiB of this plan fit into it"
    )


def _refuse_impossible(work: Work, told: Wish, wish: Wish, options: argparse.Namespace) -> None:
    """Raises for what need not be measured, since nothing could be made of it."""
    from tianji.strategy.plan import solver
    from tianji.strategy.probe import fixed_keys
    from tianji.strategy.simulate import simulate_options

    if options.simulate:
        simulate_options.refuse_impossible(work, options)
    if not options.simulate or options.out is not None:  # where a plan is made
        solver.refuse_impossible(work, wish, fixed_keys.words_for(told))


def _changed(options: argparse.Namespace) -> list[str]:
    """The options that change the job, and not only how it is split."""
    scaled = [f"--batch-scale {options.batch_scale}"] if (options.batch_scale or 1) > 1 else []
    return [*scaled, *(["--gpu"] if options.gpu else [])]


def _refuse_idle_options(options: argparse.Namespace) -> None:
    """Raises for what would have no effect."""
    if options.seconds is not None and options.profile is not None:
        raise TianJiError(
            f"--seconds {options.seconds:g} with --profile {options.profile}: the costs are those "
            "of the file, and nothing is measured: leave one of the two out"
        )
    if options.simulate and options.cores and options.profile and options.out is None:
        raise TianJiError(
            f"--cores {options.cores} with --simulate --profile {options.profile}: nothing is "
            f"measured on them and no plan is written: say --cores-list {options.cores} to predict "
            "what they could do, or leave it out"
        )
    # The learning rate follows the batch, and only `--batch-scale` changes that.
    if options.lr_rule is not None and options.batch_scale is None:
        raise TianJiError(
            f"--lr-rule {options.lr_rule}: says what --batch-scale does to the learning rate, and "
            "has no effect without it: add --batch-scale K, or leave --lr-rule out"
        )


def _what_next(options: argparse.Namespace, plan: Plan, out: Path, width: int | None = None) -> str:
    """The command that trains as planned, and what is to be said about that."""
    from tianji.config import load
    from tianji.config.keywords import as_overrides
    from tianji.machine.notices import apart
    from tianji.machine.placement import n_ranks
    from tianji.strategy.probe import plan_for_run

    repeated, hosts = (
        plan_for_run.beside(plan, options.config, options.overrides),
        options.hosts or 1,
    )
    config = load(options.config, [*repeated, *as_overrides(plan.overrides)])
    words = ["tianji", "train", options.config]
    words += [word for override in repeated for word in ("--set", override)]
    if hosts > 1:
        words += ["--engine", "mpi", "--hostfile", HOSTFILE]
    elif not config.parallel.global_cfg.use_comm_parallel:
        words += ["--engine", "process"]
    elsewhere = _elsewhere(plan, out)
    lines = [] if elsewhere is None else wrapped(elsewhere, width, indent=2)
    first = "to train with it: " if elsewhere is None else "to train with it there: "
    lines += command([*words, "--plan", str(out)], width, first)
    if hosts > 1:
        slots = -(-n_ranks(config) // hosts)
        said = f"{HOSTFILE} has a line for each machine, as in `node1 slots={slots}`"
        lines += wrapped(said, width, indent=2)
    if (text := apart(config)) is not None:
        lines += wrapped(text, width, len("note: "), "note: ")
    return "\n".join(lines)


def _elsewhere(plan: Plan, out: Path) -> str | None:
    """Where a plan for more cores than there are here can be used; None: here."""
    from tianji.strategy.probe import plan_for_run

    if (found := plan_for_run.lacking(plan, plan.split.hosts)) is None:
        return None
    needed, offered = found
    those, then = f"a machine with {needed:,} cores", ": `tianji train` refuses it here"
    if plan.split.hosts > 1:  # of which this one need not be
        those, then = f"machines with {needed:,} cores each", ""
    return (
        f"this plan is for {those}, and this one offers {offered:,}{then}. "
        f"Take {out} there, where another processor may make another split the faster one"
    )


def _out(options: argparse.Namespace) -> Path:
    """Where the plan goes; that it cannot is said before anything is measured."""
    from tianji.core import atomic_file
    from tianji.strategy.plan import plan_file

    out: Path = options.out or Path(f"{Path(options.config).stem}.plan.json")
    known: Path | None = options.profile
    if options.out is None and not options.simulate and known and known.resolve() == out.resolve():
        raise TianJiError(
            f"--profile {known}: the new plan would take the place of that one: name its file with "
            "--out, the same if it is to go"
        )
    if options.out is not None or not options.simulate:  # which writes only what it is asked for
        atomic_file.refuse_to_lose(out, "--out", plan_file.is_plan, "tianji plan")
    return out


def _words_of(wish: Wish) -> str:
    cores = count_of(wish.cores, "core")
    return cores if wish.hosts == 1 else f"{wish.hosts} hosts of {cores} each"


def _wishes(options: argparse.Namespace) -> tuple[Wish, Wish]:
    """What `--set` fixes of a plan, and all that is fixed of it."""
    from tianji.machine.resources import free_bytes, usable_here
    from tianji.strategy.plan.solver import Wish
    from tianji.strategy.probe import fixed_keys

    here = usable_here()
    cores, hosts = options.cores or here, options.hosts or 1
    memory = free_bytes() if cores <= here else None  # of a larger machine nobody knows
    if options.simulate:  # the layout that was named need not fit here
        free = Wish(cores, memory_bytes=None if options.out is None else memory)
        return free, free
    told = fixed_keys.wish_of(options.config, options.overrides, cores, hosts, memory)
    asked = Wish(
        cores,
        hosts,
        groups=options.groups,
        actors=options.actors,
        envs=options.envs,
        learner_cores=options.learner_cores,
        memory_bytes=memory,
        buffer_alone=options.buffer_alone or None,
    )
    return told, fixed_keys.both(told, asked)


def _profile(path: Path | None) -> Profile | None:
    from tianji.strategy.plan import plan_file

    return None if path is None else plan_file.read(path).profile
