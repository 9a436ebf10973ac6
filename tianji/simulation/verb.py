"""The options of `tianji plan --simulate`, and what it does with them."""

from __future__ import annotations

import argparse
import dataclasses
import json
from contextlib import suppress
from pathlib import Path

from tianji.errors import TianJiError
from tianji.planning.profile import Profile
from tianji.simulation import diagram
from tianji.simulation.bounds import expected
from tianji.simulation.layout import Layout, costs_of
from tianji.simulation.result import Simulated
from tianji.simulation.schedule import Schedule
from tianji.simulation.simulate import CORES, balanced, simulate, sweep
from tianji.simulation.styles import STYLES, schedules
from tianji.simulation.table import styles_table, table

GBIT = 1e9 / 8  # bytes per second
ASSUMED_GBIT = 10.0  # where a link is needed and nobody has said how fast it is
FIGURE_ACTORS = 4  # of the diagram, unless --actors says otherwise


def add_arguments(parser: argparse._ActionsContainer) -> None:
    """Declares the options; those that the parser has already stay as they are."""
    for name, options in _OPTIONS.items():
        with suppress(argparse.ArgumentError):
            parser.add_argument(name, **options)  # type: ignore[arg-type]  # as in `_OPTIONS`


_OPTIONS: dict[str, dict[str, object]] = {
    "--simulate": {
        "action": "store_true",
        "help": "predict any number of cores from the profile, without having them",
    },
    "--groups": {"type": int, "metavar": "G", "help": "simulate so many groups"},
    "--learners": {"type": int, "metavar": "K", "help": "of each group (default: the profile's)"},
    "--learner-cores": {
        "type": int,
        "metavar": "N",
        "help": "of each learner (default: what makes most of a core)",
    },
    "--actors": {
        "type": int,
        "metavar": "N",
        "help": "of each group (default: as many as keep the learner busy)",
    },
    "--actors-list": {
        "metavar": "LIST",
        "help": "simulate each of these numbers of actors, as in 1,2,4,8",
    },
    "--envs": {"type": int, "metavar": "E", "help": "environments of each actor"},
    "--hosts": {"type": int, "metavar": "N", "help": "machines that the groups are spread over"},
    "--host-cores": {"type": int, "default": 64, "metavar": "N", "help": "with --cores-list"},
    "--link-gbit": {"type": float, "metavar": "X", "help": "speed between hosts, each way"},
    "--buffer-alone": {"action": "store_true", "help": "give the buffer a core of its own"},
    "--gpu": {"action": "store_true", "help": "the learners have one"},
    "--cores-list": {
        "metavar": "LIST",
        "help": "replicate the balanced group over so many cores, as in 16,256,10000",
    },
    "--spread": {
        "type": float,
        "default": 0.0,
        "metavar": "S",
        "help": "standard deviation of costs, as a share of them",
    },
    "--styles": {
        "metavar": "LIST",
        "help": f"draw the schedules of Figure 1: all, or some of {','.join(STYLES)}",
    },
    "--figure": {"type": Path, "metavar": "FILE", "help": "the same into an SVG file"},
    "--simulated": {"type": Path, "metavar": "FILE", "help": "what was simulated, as JSON"},
}


def run(profile: Profile, options: argparse.Namespace) -> int:
    """Prints the tables, draws the diagram and writes the files that were asked for."""
    layout = _layout(profile, options)
    results = _simulated(profile, layout, options)
    print(f"{profile.work.name}, simulated from costs measured on {profile.machine.cpu}")
    print()
    print(table(results))
    drawn = _styles(profile, layout, options)
    if drawn:
        print()
        print(diagram.text(drawn))
        print()
        print(styles_table(drawn))
    if options.figure is not None:
        _write(options.figure, diagram.svg(drawn), "--figure")
    if options.simulated is not None:
        plain = [result.to_json() for result in results]
        _write(options.simulated, json.dumps(plain, indent=1) + "\n", "--simulated")
    return 0


def _simulated(profile: Profile, layout: Layout, options: argparse.Namespace) -> list[Simulated]:
    """One layout if the options name one, otherwise the balanced group on more and more cores."""
    if options.spread < 0 or options.spread > 0.5:
        raise TianJiError(f"--spread {options.spread:g}: want a share from 0 to 0.5, as in 0.1")
    if not _sweeps(options):
        named = _actors(options)
        if not named:
            one = balanced(profile, dataclasses.replace(layout, groups=1, hosts=1))
            named = [one.actors]
        layouts = [dataclasses.replace(layout, actors=n) for n in named]
        return [simulate(profile, each, spread=options.spread) for each in layouts]
    cores = CORES if options.cores_list is None else _numbers(options.cores_list, "--cores-list")
    if options.host_cores < 1:
        raise TianJiError(f"--host-cores {options.host_cores}: want at least 1")
    return sweep(profile, layout, cores, options.host_cores, spread=options.spread)


def _sweeps(options: argparse.Namespace) -> bool:
    """Whether no layout was named, or numbers of cores were."""
    named = (options.groups, options.actors, options.actors_list, options.hosts)
    return options.cores_list is not None or all(each is None for each in named)


def _layout(profile: Profile, options: argparse.Namespace) -> Layout:
    link = options.link_gbit
    if link is not None and link <= 0:
        raise TianJiError(f"--link-gbit {link:g}: want a speed above 0, as in 10")
    speed = link * GBIT if link is not None else profile.link_bytes_per_second
    if speed is None and (_sweeps(options) or (options.hosts or 1) > 1):
        speed = ASSUMED_GBIT * GBIT
        print(f"links of {ASSUMED_GBIT:g} Gbit/s are assumed: say it with --link-gbit")
    layout = Layout(
        learners=profile.work.learners if options.learners is None else options.learners,
        envs=options.envs,
        link_bytes_per_second=speed,
        buffer_alone=options.buffer_alone,
        gpu=options.gpu,
    )
    return dataclasses.replace(
        layout,
        groups=1 if options.groups is None else options.groups,
        hosts=1 if options.hosts is None else options.hosts,
        learner_cores=options.learner_cores or _learner_cores(profile, layout),
    )


def _learner_cores(profile: Profile, layout: Layout) -> int:
    """The measured number with which a balanced group makes most of its cores."""

    def worth(cores: int) -> float:
        group = balanced(profile, dataclasses.replace(layout, learner_cores=cores))
        made = expected(costs_of(profile, group))
        return made / group.group_cores(profile.work.alternates)

    return max(sorted({cost.cores for cost in profile.learners}), key=worth)


def _styles(profile: Profile, layout: Layout, options: argparse.Namespace) -> list[Schedule]:
    said = options.styles or ("all" if options.figure is not None else None)
    if said is None:
        return []
    names = STYLES if said == "all" else tuple(word.strip() for word in said.split(","))
    (actors, *_) = _actors(options) or [FIGURE_ACTORS]
    return schedules(profile, dataclasses.replace(layout, actors=actors), names)


def _actors(options: argparse.Namespace) -> list[int]:
    if options.actors_list is not None:
        return _numbers(options.actors_list, "--actors-list")
    return [] if options.actors is None else [options.actors]


def _write(path: Path, text: str, option: str) -> None:
    if option == "--figure" and path.suffix != ".svg":
        raise TianJiError(f"--figure {path}: want a name that ends with .svg")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise TianJiError(f"{option} {path}: {error.strerror}: name a file to write to") from error
    print(path)


def _numbers(said: str, option: str) -> list[int]:
    words = [word.strip() for word in said.split(",") if word.strip()]
    if not words or not all(word.isdecimal() and int(word) for word in words):
        raise TianJiError(f"{option} {said}: want numbers from 1 with commas, as in 16,256,10000")
    return sorted({int(word) for word in words})
