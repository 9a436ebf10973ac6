"""The options of `tianji plan --simulate`, and what it does with them."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tianji.core import atomic_file, terminal
from tianji.core.columns import wrapped
from tianji.core.errors import TianJiError
from tianji.strategy.plan.profile import Profile, Work
from tianji.strategy.simulate import option_words
from tianji.strategy.simulate.bounds import expected_rate
from tianji.strategy.simulate.layout import Layout, costs_of
from tianji.strategy.simulate.refusals import (
    MOST_CORES,
    refuse_impossible_layout,
    refuse_unequal,
    refuse_uneven_hosts,
    refuse_unshared,
)
from tianji.strategy.simulate.result import Simulated
from tianji.strategy.simulate.simulation_text import table
from tianji.strategy.simulate.simulator import simulate
from tianji.strategy.simulate.sweep import CORES, HOST_CORES, balanced, sweep

GBIT = 1e9 / 8  # bytes per second
ASSUMED_GBIT = 10.0  # where a link is needed and nobody has said how fast it is
COLUMNS = {  # of the table that show what an option asked for
    "--groups": "groups",
    "--hosts": "hosts",
    "--link-gbit": "link",
    "--envs": "envs",
    "--learners": "learners",
    "--learner-cores": "learners",
    "--buffer-alone": "learners",
}
LAYOUT = ("--groups", "--actors", "--hosts", "--actors-list")  # where one is named, one is shown


def add_arguments(parser: argparse._ActionsContainer, count: Callable[[str], int]) -> None:
    """Declares what only `--simulate` has; `count` reads a number of something.

    The layout itself is named by options that a plan has as well, as `--groups` and `--actors`.
    """
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="predict any number of cores from the profile, without having them",
    )
    for option, reads, metavar, purpose in (
        ("--learners", count, "K", "of each group (default: the profile's)"),
        ("--actors-list", option_words.numbers, "LIST", "simulate each of these, as in 1,2,4,8"),
        ("--cores-list", option_words.numbers, "LIST", "make most of so many, as in 16,256,10000"),
        ("--host-cores", count, "N", f"of each host, for --cores-list (default: {HOST_CORES})"),
        ("--link-gbit", option_words.speed, "X", "speed between hosts, each way"),
        (
            "--spread",
            option_words.share,
            "S",
            "standard deviation of costs, as a share of them (default: 0)",
        ),
        ("--simulated", Path, "FILE", "what was simulated, as JSON"),
    ):
        parser.add_argument(option, type=reads, metavar=metavar, help=purpose)


def check(options: argparse.Namespace) -> None:
    """Refuses options that would have no effect or no end, before anything is measured."""
    _refuse_large_machines(options)
    own = [name for name in _own() if _is_given(options, name)]
    if not options.simulate and own:
        raise TianJiError(f"{own[0]}: an option of --simulate: add that, or leave this out")
    named = [name for name in LAYOUT if _is_given(options, name)]
    if options.cores_list is not None and named:
        raise TianJiError(
            f"{named[0]} with --cores-list: the fastest layout of those cores is looked for: leave "
            "one of the two out"
        )
    if options.host_cores is not None and named:
        raise TianJiError(
            f"--host-cores with {named[0]}: the layout is named, and its hosts are those of "
            "--hosts: leave one of the two out"
        )
    if options.actors is not None and options.actors_list is not None:
        raise TianJiError("--actors with --actors-list: leave one of the two out")
    if options.link_gbit is not None and _is_on_one_host(options):
        raise TianJiError(
            f"--link-gbit {options.link_gbit:g}: all of it is on one host, and nothing crosses a "
            "link: name several with --hosts, or more cores in --cores-list than a host has "
            f"(--host-cores, {HOST_CORES} unless said), or leave it out"
        )
    if options.simulated is not None:
        maker = "tianji plan --simulated"
        atomic_file.refuse_to_lose(options.simulated, "--simulated", _is_simulated, maker)


def _refuse_large_machines(options: argparse.Namespace) -> None:
    """Raises for more cores than one machine has; there may be any number of machines."""
    for name, many in (
        ("--cores", "for several say --hosts N; --simulate --cores-list {} predicts what many do"),
        ("--host-cores", "--cores-list may have any number, on as many hosts as that takes"),
    ):
        cores = getattr(options, name[2:].replace("-", "_"))
        if cores is not None and cores > MOST_CORES:
            raise TianJiError(
                f"{name} {cores}: the cores of one machine, {MOST_CORES:,} at most: "
                + many.format(cores)
            )


def _own() -> list[str]:
    """The options that mean nothing without `--simulate`."""
    alone = argparse.ArgumentParser(add_help=False)
    add_arguments(alone, int)
    names = [f"--{name.replace('_', '-')}" for name in vars(alone.parse_args([]))]
    return [name for name in names if name != "--simulate"]


def _is_given(options: argparse.Namespace, name: str) -> bool:
    value = getattr(options, name[2:].replace("-", "_"))
    return value is not None and value is not False  # 0 is a number that was said


def run(profile: Profile, options: argparse.Namespace, above: Sequence[str] = ()) -> int:
    """Writes the files that were asked for; prints the tables, below paragraphs about the costs."""
    refuse_impossible(profile.work, options)  # the costs may have come from a file
    layout = _layout(profile, options)
    results = _simulated(profile, layout, options)
    written = _write_file(options, results)  # first: who reads what we print may go away
    width = terminal.width()
    title, *more = above or [f"{profile.work.name}, measured on {profile.machine.cpu}"]
    if _link_is_assumed(profile, options):
        more.append(f"links of {ASSUMED_GBIT:g} Gbit/s are assumed: say it with --link-gbit")
    for paragraph in (f"{title}; simulated from these costs", *more):
        print("\n".join(wrapped(paragraph, width, indent=2)), end="\n\n")
    print(table(results, width, [COLUMNS[name] for name in COLUMNS if _is_given(options, name)]))
    if written is not None:
        print(written)
    return 0


def refuse_impossible(work: Work, options: argparse.Namespace) -> None:
    """Raises for layouts that no run of a job could have; costs make no difference to that."""
    layout = _named(work, options)
    for actors in _actors(options):
        refuse_impossible_layout(dataclasses.replace(layout, actors=actors), work)
    if not _actors(options):
        refuse_unequal(layout, work)
        refuse_uneven_hosts(layout)
        if _sweeps(options) or (work.alternates and layout.envs is None):
            refuse_unshared(layout, work)


def _simulated(profile: Profile, layout: Layout, options: argparse.Namespace) -> list[Simulated]:
    """The layouts that the options name, otherwise the fastest ones on more and more cores."""
    spread = options.spread or 0.0
    if not _sweeps(options):
        named = _actors(options)
        if not named:
            one = balanced(profile, dataclasses.replace(layout, groups=1, hosts=1))
            named = [one.actors]
        layouts = [dataclasses.replace(layout, actors=n) for n in named]
        for each in layouts:
            refuse_impossible_layout(each, profile.work)
        return [simulate(profile, each, spread=spread) for each in layouts]
    cores, host_cores = options.cores_list or CORES, options.host_cores or HOST_CORES
    return sweep(profile, layout, cores, host_cores, options.learner_cores, spread)


def _sweeps(options: argparse.Namespace) -> bool:
    """Whether no layout was named."""
    return not any(_is_given(options, name) for name in LAYOUT)


def _layout(profile: Profile, options: argparse.Namespace) -> Layout:
    link = options.link_gbit
    speed = link * GBIT if link is not None else profile.link_bytes_per_second
    if _link_is_assumed(profile, options):
        speed = ASSUMED_GBIT * GBIT
    layout = dataclasses.replace(_named(profile.work, options), link_bytes_per_second=speed)
    cores = options.learner_cores or _learner_cores(
        profile, dataclasses.replace(layout, groups=1, hosts=1)
    )
    return dataclasses.replace(layout, learner_cores=cores)


def _named(work: Work, options: argparse.Namespace) -> Layout:
    """What the options say of a layout, with nothing that only costs can tell."""
    return Layout(
        groups=1 if options.groups is None else options.groups,
        learners=work.learners if options.learners is None else options.learners,
        envs=options.envs,
        hosts=1 if options.hosts is None else options.hosts,
        buffer_alone=options.buffer_alone,
        gpu=options.gpu,
    )


def _link_is_assumed(profile: Profile, options: argparse.Namespace) -> bool:
    """Whether a link is needed of which nobody has said how fast it is."""
    known = options.link_gbit is not None or profile.link_bytes_per_second is not None
    return not known and not _is_on_one_host(options)


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
    if options.actors_list is not None:
        return list(options.actors_list)
    return [] if options.actors is None else [options.actors]


def _write_file(options: argparse.Namespace, results: list[Simulated]) -> Path | None:
    """The one that was asked for."""
    path: Path | None = options.simulated
    if path is not None:
        plain = [result.to_json() for result in results]
        with atomic_file.explained("name another file with --simulated"):
            atomic_file.write(path, json.dumps(plain, indent=1) + "\n")
    return path


def _is_simulated(path: Path) -> bool:
    """Whether a file is a list of what was simulated, as `run` writes it."""
    try:
        plain = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    rows = plain if isinstance(plain, list) else []
    return bool(rows) and all(isinstance(row, dict) and "layout" in row for row in rows)
