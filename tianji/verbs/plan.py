"""`tianji plan CONFIG`: measures a job, and says how to split the cores among its roles."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tianji import terminal
from tianji.verbs.training import add_overrides
from tianji.wording import count_of

if TYPE_CHECKING:
    from tianji.planning.planfile import Plan
    from tianji.planning.profile import Profile
    from tianji.planning.solver import Wish


NARROW, WIDE = 80, 160  # columns of a table, and of one that nobody looks at
HOSTFILE = "hosts.txt"  # in the command that trains on several machines


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `plan`."""
    parser.add_argument("config", metavar="CONFIG", help="configuration file of the run")
    for option, metavar, purpose in (
        ("--cores", "M", "cores of each machine (default: all that this one offers)"),
        ("--hosts", "N", "machines like this one (default: 1)"),
        ("--groups", "G", "groups (default: as many as make it fastest)"),
        ("--actors", "N", "actors of each group (default: as many as the learner can take)"),
        ("--envs", "E", "environments of each actor (default: what makes it fastest)"),
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
        default=20.0,
        metavar="S",
        help="about how long to measure at most (default: 20)",
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
    from tianji.simulation import verb

    verb.add_arguments(parser.add_argument_group("options of --simulate"), _count)


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
    from tianji.planning import planfile, table
    from tianji.probing import planner, scaling
    from tianji.simulation import verb

    verb.check(options)
    out = _out(options)
    overrides = [*options.overrides, *(["learner_cfg.device='cuda'"] if options.gpu else [])]
    config = load(options.config, overrides)
    rule = options.lr_rule or scaling.DEFAULT
    settings = scaling.scaling_keys(config, options.batch_scale or 1, rule)
    if options.gpu:
        settings["learner_cfg.device"] = "cuda"
    profile, wish = _profile(options.profile), _wish(options)
    began = time.monotonic()
    say = _StatusLine(options.quiet or profile is not None)
    try:
        job = options.config, overrides, wish.cores, settings, say, options.seconds, profile
        planned_for, found = planner.measure(*job)
    finally:
        say.over()
    measured = f"measured in {time.monotonic() - began:.0f} s" if profile is None else "as measured"
    where = f"{count_of(found.machine.cores, 'core')} ({found.machine.cpu})"
    if options.simulate:
        print(f"{config.name}, {measured} on {where}\n")
        if options.out is not None:
            planfile.write(planner.make(planned_for, found, wish, settings).plan, out)
            print(f"{out}: the costs, and a plan for this machine that leaves all open\n")
        return verb.run(found, options)
    planned = planner.make(planned_for, found, wish, settings)
    print(f"{config.name} for {_words_of(wish)}, {measured} on {where}\n")
    width = max(terminal.columns(WIDE), NARROW)
    print(table.describe(found, planned.choices, planned.configured, width))
    if planned.note is not None:
        print(f"\nnote: {planned.note}")
    planfile.write(planned.plan, out)
    print(f"\n{_what_next(options, planned.plan, out)}")
    return 0


def _what_next(options: argparse.Namespace, plan: Plan, out: Path) -> str:
    """The command that trains as planned, and what is to be said about that."""
    from tianji.config import load
    from tianji.config.keywords import as_overrides
    from tianji.notices import apart
    from tianji.placement import n_ranks
    from tianji.probing import planner

    repeated, hosts = planner.beside(plan, options.config, options.overrides), options.hosts or 1
    config = load(options.config, [*repeated, *as_overrides(plan.overrides)])
    words = ["tianji", "train", options.config]
    words += [word for override in repeated for word in ("--set", override)]
    if hosts > 1:
        words += ["--engine", "mpi", "--hostfile", HOSTFILE]
    elif not config.parallel.global_cfg.use_comm_parallel:
        words += ["--engine", "process"]
    lines = [f"to train with it: {shlex.join([*words, '--plan', str(out)])}"]
    if hosts > 1:
        slots = -(-n_ranks(config) // hosts)
        lines.append(f"{HOSTFILE} has a line for each machine, as in `node1 slots={slots}`")
    if (text := apart(config)) is not None:
        lines.append(f"note: {text}")
    return "\n".join(lines)


def _out(options: argparse.Namespace) -> Path:
    """Where the plan goes; that it cannot is said before anything is measured."""
    from tianji import wholefile
    from tianji.planning import planfile

    out: Path = options.out or Path(f"{Path(options.config).stem}.plan.json")
    if options.out is not None or not options.simulate:  # which writes only what it is asked for
        wholefile.refuse_to_lose(out, "--out", planfile.is_plan, "tianji plan")
    return out


def _words_of(wish: Wish) -> str:
    cores = count_of(wish.cores, "core")
    return cores if wish.hosts == 1 else f"{wish.hosts} hosts of {cores} each"


def _wish(options: argparse.Namespace) -> Wish:
    from tianji.planning.solver import Wish
    from tianji.resources import free_bytes, usable_here

    cores = options.cores or usable_here()
    if options.simulate:  # the layout that was named need not fit here
        return Wish(cores, memory_bytes=None if options.out is None else free_bytes())
    return Wish(
        cores,
        options.hosts or 1,
        groups=options.groups,
        actors=options.actors,
        envs=options.envs,
        learner_cores=options.learner_cores,
        memory_bytes=free_bytes(),
    )


def _profile(path: Path | None) -> Profile | None:
    from tianji.planning import planfile

    return None if path is None else planfile.read(path).profile


class _StatusLine:
    """One line about what is being measured, written over the one before."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._live = sys.stderr.isatty()

    def __call__(self, words: str) -> None:
        if not self._quiet:
            text = f"measuring: {words}"
            print(f"\r\x1b[2K{text}" if self._live else text, end="" if self._live else "\n",
                  file=sys.stderr, flush=True)  # fmt: skip

    def over(self) -> None:
        """Takes the line away."""
        if not self._quiet and self._live:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
