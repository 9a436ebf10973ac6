"""`tianji plan CONFIG`: measures a job, and says how to split the cores among its roles."""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    from tianji.strategy.plan.solver import PlanRequest

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
    for option, purpose in (
        ("--profile", "take the costs of an earlier plan, and measure nothing"),
        ("--out", "file to write (default: CONFIG's name.plan.json)"),
    ):
        parser.add_argument(option, type=Path, metavar="FILE", help=purpose)
    parser.add_argument("--quiet", action="store_true", help="show nothing while measuring")
    from tianji.strategy.simulate import simulate_options

    simulate_options.add_arguments(parser.add_argument_group("options of --simulate"), _count)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"want a whole number of at least 1, got {text}")
    return int(text)


def _seconds(text: str) -> float:
    if not 1.0 <= (seconds := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"want a number of at least 1, got {text}")
    return seconds


def run(options: argparse.Namespace) -> int:
    """Measures, plans, prints and writes."""
    from tianji.config import load
    from tianji.strategy.plan import plan_file, plan_text
    from tianji.strategy.probe import larger_batch, planner
    from tianji.strategy.simulate import simulate_options

    _refuse_idle_options(options)
    simulate_options.check(options)
    out = _out(options)
    overrides = [*options.overrides, *(["learner_cfg.device='cuda'"] if options.gpu else [])]
    rule, scale = options.lr_rule or larger_batch.DEFAULT, options.batch_scale or 1
    settings = larger_batch.scaling_keys(load(options.config, overrides), scale, rule)
    if options.gpu:
        settings["learner_cfg.device"] = "cuda"
    wish = _wish(options)
    config, profile, where = _measured(options, overrides, settings, wish)
    cores = count_of(wish.cores, "core")
    offered = cores if wish.hosts == 1 else f"{wish.hosts} hosts of {cores} each"
    if options.simulate:
        said = [f"{config.name}, {where}"]
        if options.out is not None:
            plan_file.write(planner.make(config, profile, wish, settings, scale).plan, out)
            said.append(f"{out}: the costs, and a plan for {offered} that leaves all open")
        return simulate_options.run(profile, options, said)
    planned = planner.make(config, profile, wish, settings, scale)
    plan, width = planned.plan, terminal.width()
    plan_file.write(plan, out)  # first: who reads what is printed may go away
    changed = [f"--batch-scale {scale}"] * (scale > 1) + ["--gpu"] * options.gpu
    fused = config.parallel.global_cfg.use_group_parallel
    _print(f"{config.name} for {offered}, {where}")
    choices, own = planned.choices, planned.configured
    print(plan_text.describe(profile, choices, own, width, wish.cores, changed, fused), end="\n\n")
    if planned.note is not None:
        _print(planned.note, "note: ")
    if wish.memory_bytes is None:
        needed = plan.prediction.memory_bytes / wish.hosts / 2**20
        _print(f"nobody knows whether {needed:,.0f} MiB fit into such a machine", "note: ")
    print(_what_next(options, plan, out, width))
    return 0


def _measured(
    options: argparse.Namespace, overrides: list[str], settings: dict[str, Any], wish: PlanRequest
) -> tuple[Config, Profile, str]:
    """The configuration, what it costs, and in words where and how that was found."""
    from tianji.strategy.plan import plan_file, solver
    from tianji.strategy.probe import planner
    from tianji.strategy.simulate import simulate_options

    def refuse(work: Work) -> None:
        if options.simulate:
            simulate_options.refuse_impossible(work, options)
        if not options.simulate or options.out is not None:  # where a plan is made
            solver.refuse_impossible(work, wish)

    known = None if options.profile is None else plan_file.read(options.profile).profile
    began = time.monotonic()
    say = terminal.StatusLine(options.quiet or known is not None)
    seconds = options.seconds or MOST_SECONDS
    try:
        config, profile = planner.measure(
            options.config, overrides, wish.cores, settings, say, seconds, known, refuse
        )
    finally:
        say.over()
    measured = f"measured in {time.monotonic() - began:.0f} s" if known is None else "as measured"
    machine = profile.machine
    return config, profile, f"{measured} on {count_of(machine.cores, 'core')} ({machine.cpu})"


def _print(text: str, first: str = "") -> None:
    """A paragraph, and the blank line after it."""
    print("\n".join(wrapped(text, terminal.width(), len(first) or 2, first)), end="\n\n")


def _refuse_idle_options(options: argparse.Namespace) -> None:
    """Raises for what would have no effect, or no end."""
    from tianji.strategy.simulate.refusals import MOST_CORES

    for name in ("cores", "host_cores"):
        if (getattr(options, name) or 0) > MOST_CORES:
            raise TianJiError(
                f"--{name.replace('_', '-')} {getattr(options, name)}: the cores of one machine, "
                f"{MOST_CORES:,} at most: for several say --hosts N; --simulate --cores-list LIST "
                "predicts what many do"
            )
    simulates = options.simulate and options.out is None  # and so no plan is made
    for option, value, beside, has_effect in (
        ("--seconds", options.seconds, "--profile", options.profile is None),
        ("--cores", options.cores, "--simulate --profile", not (simulates and options.profile)),
        ("--lr-rule", options.lr_rule, "no --batch-scale", options.batch_scale is not None),
    ):
        if value is not None and not has_effect:
            raise TianJiError(f"{option} {value} with {beside}: it has no effect: leave one out")


def _what_next(options: argparse.Namespace, plan: Plan, out: Path, width: int | None = None) -> str:
    """The command that trains as planned, and what is to be said about that."""
    from tianji.config import load
    from tianji.config.keywords import as_overrides
    from tianji.machine.notices import apart
    from tianji.machine.placement import n_ranks
    from tianji.strategy.probe import plan_for_run

    repeated = plan_for_run.beside(plan, options.config, options.overrides)
    config = load(options.config, [*repeated, *as_overrides(plan.overrides)])
    hosts = plan.split.hosts
    words = ["tianji", "train", options.config]
    words += [word for override in repeated for word in ("--set", override)]
    if hosts > 1:
        words += ["--engine", "mpi", "--hostfile", HOSTFILE]
    elif not config.parallel.global_cfg.use_comm_parallel:
        words += ["--engine", "process"]
    lines, there = [], ""
    if (found := plan_for_run.lacking(plan, hosts)) is not None:
        there = " there"
        lines = wrapped(
            f"this plan is for machines with {found[0]:,} cores, and this one offers {found[1]:,}: "
            f"take {out} there, where another processor may make another split the faster one",
            width,
            indent=2,
        )
    lines += command([*words, "--plan", str(out)], width, f"to train with it{there}: ")
    if hosts > 1:
        slots = -(-n_ranks(config) // hosts)
        said = f"{HOSTFILE} has a line for each machine, as in `node1 slots={slots}`"
        lines += wrapped(said, width, indent=2)
    if (text := apart(config)) is not None:
        lines += wrapped(text, width, len("note: "), "note: ")
    return "\n".join(lines)


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


def _wish(options: argparse.Namespace) -> PlanRequest:
    """What `--set` and the options fix of a plan; refuses two that do not agree."""
    from tianji.machine.resources import free_bytes, usable_here
    from tianji.strategy.plan.solver import PlanRequest
    from tianji.strategy.probe import fixed_keys

    here = usable_here()
    cores, hosts = options.cores or here, options.hosts or 1
    memory = free_bytes() if cores <= here else None  # of a larger machine nobody knows
    if options.simulate:  # the layout that was named need not fit here
        return PlanRequest(cores, memory_bytes=None if options.out is None else memory)
    told = fixed_keys.wish_of(options.config, options.overrides, cores, hosts, memory)
    asked = {
        name: value
        for name in ("groups", "actors", "envs", "learner_cores", "buffer_alone")
        if (value := getattr(options, name))
    }
    for name, value in asked.items():
        if (mine := getattr(told, name)) not in (None, value):
            option = f"--{name.replace('_', '-')} {'' if value is True else value}".rstrip()
            raise TianJiError(
                f"{option}: --set says {mine}, and they do not agree: leave one of the two out"
            )
    return replace(told, **asked)
