"""The options of `tianji plan --simulate`, and what it does with them."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from tianji.core import atomic_file, terminal
from tianji.core.columns import wrapped
from tianji.core.errors import TianJiError
from tianji.core.json_file import read_bytes
from tianji.strategy.plan.profile import Profile, Work
from tianji.strategy.simulate.bounds import expected_rate
from tianji.strategy.simulate.core_layout import Layout, costs_of
from tianji.strategy.simulate.prediction import Simulated
from tianji.strategy.simulate.refusals import refuse_impossible_layout, refuse_unequal
from tianji.strategy.simulate.simulation_text import table
from tianji.strategy.simulate.simulator import simulate
from tianji.strategy.simulate.sweep import CORES, HOST_CORES, balanced, sweep

GBIT = 1e9 / 8  # bytes per second
ASSUMED_GBIT = 10.0  # where a link is needed and nobody has said how fast it is
OWN = ("learners", "actors_list", "cores_list", "host_cores", "link_gbit", "simulated")
LAYOUT = ("groups", "actors", "hosts", "actors_list")  # where one is named, one is shown


def add_arguments(parser: argparse._ActionsContainer, count: Callable[[str], int]) -> None:
    """Declares what only `--simulate` has; `count` reads a number of something.

    The layout itself is named by options that a plan has as well, as `--groups` and `--actors`.
    """
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="predict any number of cores from the profile, without having them",
    )

    def numbers(text: str) -> list[int]:
        return sorted({count(word.strip()) for word in text.split(",")})

    def speed(text: str) -> float:
        if not 0 < (number := float(text)) < math.inf:
            raise argparse.ArgumentTypeError(f"want a speed above 0, got {text}")
        return number

    for option, reads, metavar, purpose in (
        ("--learners", count, "K", "of each group (default: the profile's)"),
        ("--actors-list", numbers, "LIST", "simulate each of these, as in 1,2,4,8"),
        ("--cores-list", numbers, "LIST", "make most of so many, as in 16,256,10000"),
        ("--host-cores", count, "N", f"of each host, for --cores-list (default: {HOST_CORES})"),
        ("--link-gbit", speed, "X", "speed between hosts, each way"),
        ("--simulated", Path, "FILE", "what was simulated, as JSON"),
    ):
        parser.add_argument(option, type=reads, metavar=metavar, help=purpose)


def check(options: argparse.Namespace) -> None:
    """Refuses options that would have no effect or no end, before anything is measured."""
    given = [name for name in OWN if getattr(options, name) is not None]
    if given and not options.simulate:
        raise TianJiError(f"{_option(given[0])}: an option of --simulate: add that, or leave it")
    named = [name for name in LAYOUT if getattr(options, name) is not None]
    for one, others in (
        ("cores_list", named),
        ("host_cores", named),
        ("actors_list", ["actors"] * ("actors" in named)),
    ):
        if one in given and others:
            raise TianJiError(
                f"{_option(one)} with {_option(others[0])}={getattr(options, others[0])}: one of "
                "the two has no effect: leave it out"
            )
    if options.link_gbit is not None and _is_on_one_host(options):
        raise TianJiError(
            f"--link-gbit {options.link_gbit:g}: all of it is on one host: name several with "
            "--hosts, or more cores in --cores-list than --host-cores, or leave it out"
        )
    if options.simulated is not None:
        maker = "tianji plan --simulated"
        atomic_file.refuse_to_lose(options.simulated, "--simulated", _is_simulated, maker)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def run(profile: Profile, options: argparse.Namespace, above: Sequence[str] = ()) -> int:
    """Writes the file that was asked for; prints the table, below paragraphs about the costs."""
    refuse_impossible(profile.work, options)  # the costs may have come from a file
    known = options.link_gbit is not None or profile.link_bytes_per_second is not None
    is_assumed = not known and not _is_on_one_host(options)
    gbit = ASSUMED_GBIT if is_assumed else options.link_gbit
    speed = profile.link_bytes_per_second if gbit is None else gbit * GBIT
    results = _simulated(profile, _named(profile.work, options, speed), options)
    if options.simulated is not None:  # first: who reads what we print may go away
        with atomic_file.explained("name another file with --simulated"):
            plain = [result.to_json() for result in results]
            atomic_file.write(options.simulated, json.dumps(plain, indent=1) + "\n")
    width = terminal.width()
    title, *more = above or [f"{profile.work.name}, measured on {profile.machine.cpu}"]
    if is_assumed:
        more.append(f"links of {ASSUMED_GBIT:g} Gbit/s are assumed: say it with --link-gbit")
    for paragraph in (f"{title}; simulated from these costs", *more):
        print("\n".join(wrapped(paragraph, width, indent=2)), end="\n\n")
    print(table(results, width))
    if options.simulated is not None:
        print(options.simulated)
    return 0


def refuse_impossible(work: Work, options: argparse.Namespace) -> None:
    """Raises for layouts that no run of a job could have; costs make no difference to that."""
    if work.inference:
        raise TianJiError(
            "--simulate: a role that acts for actors (actor_cfg.inference) is not simulated: leave "
            "--simulate out, or that key"
        )
    layout, actors = _named(work, options), _actors(options)
    for n in actors:
        refuse_impossible_layout(dataclasses.replace(layout, actors=n), work)
    if not actors:
        refuse_unequal(layout, work)


def _simulated(profile: Profile, layout: Layout, options: argparse.Namespace) -> list[Simulated]:
    """The layouts that the options name, otherwise the fastest ones on more and more cores."""
    if _sweeps(options):
        cores, host_cores = options.cores_list or CORES, options.host_cores or HOST_CORES
        return sweep(profile, layout, cores, host_cores, options.learner_cores)
    one = dataclasses.replace(layout, groups=1, hosts=1)
    own = options.learner_cores or _learner_cores(profile, one)
    found = balanced(profile, dataclasses.replace(one, learner_cores=own)).actors
    layouts = [
        dataclasses.replace(layout, learner_cores=own, actors=n)
        for n in _actors(options) or [found]
    ]
    for each in layouts:
        refuse_impossible_layout(each, profile.work)
    return [simulate(profile, each) for each in layouts]


def _sweeps(options: argparse.Namespace) -> bool:
    """Whether no layout was named."""
    return all(getattr(options, name) is None for name in LAYOUT)


def _named(work: Work, options: argparse.Namespace, speed: float | None = None) -> Layout:
    """What the options say of a layout, with nothing that only costs can tell."""
    return Layout(
        groups=options.groups or 1,
        learners=options.learners or work.learners,
        envs=options.envs,
        hosts=options.hosts or 1,
        link_bytes_per_second=speed,
        buffer_alone=options.buffer_alone,
        gpu=options.gpu,
    )


def _is_on_one_host(options: argparse.Namespace) -> bool:
    """Whether no link can be crossed, whatever will be found."""
    if _sweeps(options):
        return max(options.cores_list or CORES) <= (options.host_cores or HOST_CORES)
    return (options.hosts or 1) == 1


def _learner_cores(profile: Profile, layout: Layout) -> int:
    """The measured number with which a balanced group makes most of its cores."""

    def worth(cores: int) -> float:
        group = balanced(profile, dataclasses.replace(layout, learner_cores=cores))
        made = expected_rate(costs_of(profile, group))
        return made / group.group_cores(profile.work)

    return max(sorted({cost.cores for cost in profile.learners}), key=worth)


def _actors(options: argparse.Namespace) -> list[int]:
    return options.actors_list or ([] if options.actors is None else [options.actors])


def _is_simulated(path: Path) -> bool:
    """Whether a file is a list of what was simulated, as `run` writes it."""
    try:
        plain = json.loads(read_bytes(path))
    except (TianJiError, ValueError, RecursionError):
        return False
    rows = plain if isinstance(plain, list) else []
    return bool(rows) and all(isinstance(row, dict) and "layout" in row for row in rows)
