"""A plan as a file: the keys that it sets, what is expected of them, and what it was made for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tianji.config import Config
from tianji.config.binder import bind
from tianji.config.section import Place, Section
from tianji.core import atomic_file
from tianji.core.errors import TianJiError
from tianji.core.json_file import parsed, read_json, read_text
from tianji.core.wording import count_of
from tianji.observe.pace import Pace, PaceComparison
from tianji.strategy.plan.model import predict
from tianji.strategy.plan.profile import Machine, Profile, count
from tianji.strategy.plan.same_job import batch_apart, digest_of, told_apart
from tianji.strategy.plan.split import Prediction, Split

NAME = "plan.json"  # in a run's folder
FORMAT = 2  # 1: the digest was of other keys
DERIVED = ("tianji_plan", "set", "predicted")  # what follows from the rest of a file


@dataclass(frozen=True)
class Plan:
    """The chosen split, and everything it came from."""

    profile: Profile
    split: Split
    settings: Mapping[str, Any] = field(default_factory=dict)  # beside those of the split
    env_scale: int = count(1, "times the configuration's environments (--batch-scale)")

    @cached_property
    def prediction(self) -> Prediction:
        """What is expected of the split."""
        return predict(self.profile, self.split)

    @property
    def overrides(self) -> dict[str, Any]:
        """Every key that the plan sets, as `--set` takes it."""
        split, own_cores = self.split, not self.split.one_core
        return {
            **self.settings,
            "global_cfg.group_num": split.groups,
            "learner_cfg.cores": split.learner_cores if own_cores else None,
            "actor_cfg.num": split.actors,
            "actor_cfg.envs": split.envs,
            "actor_cfg.cores": 1 if own_cores else None,
            "buffer_cfg.cores": 1 if split.buffer_alone else None,
        }

    def to_json(self) -> dict[str, Any]:
        """Plain data that `read` takes."""
        return {
            "tianji_plan": FORMAT,
            "set": self.overrides,
            "predicted": self.prediction.to_json(),
            "split": asdict(self.split),
            "settings": dict(self.settings),
            "env_scale": self.env_scale,
            "profile": self.profile.to_json(),
        }


def write(plan: Plan, path: Path) -> None:
    """Writes a plan so that nobody ever sees half of it."""
    with atomic_file.explained("name another file with --out"):
        atomic_file.write(path, json.dumps(plan.to_json(), indent=2) + "\n")


def of_run(folder: Path) -> Plan | None:
    """The plan that a run follows, if it follows one."""
    path = folder / NAME
    return read(path) if path.is_file() else None


def is_plan(path: Path) -> bool:
    """Whether a file is a plan of any version, so that a new one may take its place."""
    return "tianji_plan" in read_json(path)


def read(path: Path) -> Plan:
    """The plan in a file; refuses what is none."""
    make = f"make one with tianji plan CONFIG --out {path}"
    if path.is_dir():
        raise TianJiError(
            f"{path}: this is a folder: name the file of a plan, which tianji plan CONFIG writes"
        )
    try:
        text = read_text(path)
    except TianJiError as error:
        raise TianJiError(f"{error}: {make}") from error
    try:
        plain = parsed(text, str(path))
    except TianJiError:
        plain = {}
    if "tianji_plan" not in plain:
        raise TianJiError(
            f"{path}: this file is no plan: make one with tianji plan CONFIG, and name the file "
            "that it writes"
        )
    if plain["tianji_plan"] != FORMAT:
        raise TianJiError(f"{path}: this is no plan of this version: {make}")
    try:
        plan = _bound(plain, path)
    except TianJiError as error:
        raise TianJiError(
            f"{error}: this plan is damaged: make a new one with tianji plan CONFIG"
        ) from error
    if odd := [key for key in plan.settings if not key.startswith(("hyp.", "learner_cfg.device"))]:
        raise TianJiError(f"{path}: a plan does not set {odd[0]!r}: {make}")
    if plan.overrides != plain.get("set"):
        raise TianJiError(
            f"{path}: what stands under `set` does not follow from the plan's split: make a plan "
            "with it fixed (tianji plan --actors, --envs, --groups, --learner-cores, "
            "--buffer-alone), or use --set without --plan"
        )
    return plan


def _bound(plain: dict[str, Any], path: Path) -> Plan:
    place = Place(str(path))
    section = Section.of({k: v for k, v in plain.items() if k not in DERIVED}, place)
    profile = section.get_section("profile")
    machine = profile.get_section("machine").without("memory_bytes")  # of older versions
    profile = profile.replaced("machine", machine, place)
    return bind(Plan, section.replaced("profile", profile, place), "plan")


def check(
    plan: Plan, config: Config, machine: Machine, source: str, hosts: int | None = 1
) -> list[str]:
    """Refuses a plan made for something else; returns what may make it a worse one here.

    The run is spread over `hosts` that offer what `machine` does; None: nobody knows how many.
    """
    work, split, there = plan.profile.work, plan.split, plan.profile.machine
    if digest_of(config) != work.digest:
        raise _for_another(told_apart(work, config), config, source)
    of_group = split.cores(work) // split.groups
    if of_group > machine.cores:
        raise TianJiError(
            f"{source}: each group of this plan wants {of_group} cores and this machine offers "
            f"{machine.cores}: make a plan here with tianji plan CONFIG, or leave --plan out"
        )
    warnings = []
    if replace(there, cores=machine.cores) != machine:
        warnings.append(
            f"{source} was made on another machine ({_name_of(there)}; this one is "
            f"{_name_of(machine)}): what it predicts does not hold here, and another split may be "
            "faster"
        )
    return warnings if hosts is None else [*warnings, *_about_cores(plan, machine, source, hosts)]


def refuse_other_batch(plan: Plan, config: Config, source: str) -> None:
    """Raises where the keys of the plan would change the batch; `config` is without them."""
    if (apart := batch_apart(plan.profile.work, config, plan.env_scale)) is not None:
        raise _for_another(apart, config, source)


def _for_another(apart: str, config: Config, source: str) -> TianJiError:
    return TianJiError(
        f"{source}: this plan was made for another configuration ({apart}): make one for "
        f"{config.name} with tianji plan CONFIG, or leave --plan out"
    )


def _about_cores(plan: Plan, machine: Machine, source: str, hosts: int) -> Iterator[str]:
    """That the plan wants more cores than there are, or was made for fewer."""
    needed, made_on = plan.split.cores(plan.profile.work), plan.profile.machine.cores
    if needed > machine.cores * hosts:
        where = count_of(hosts, "machine") + " like this one"
        yield (
            f"{source} wants {needed} cores and {where} have {machine.cores * hosts}: on more "
            "machines that is right; on so many, roles will wait for each other's cores"
        )
    groups = plan.split.groups
    used = -(-groups // hosts) * (needed // groups)  # on the host with most groups
    if used < machine.cores and (plan.split.one_core or made_on < machine.cores):
        yield (
            f"{source} was made on {count_of(made_on, 'core')} and plans for {used} of this "
            f"machine's {machine.cores}: tianji plan CONFIG plans for all of them"
        )


def _name_of(machine: Machine) -> str:
    gpu = machine.gpu or machine.acting_gpu
    return machine.cpu + (f" with {gpu}" if gpu else "")


def compare(plan: Plan, measured: Pace | None) -> PaceComparison:
    """What a plan predicts, beside what a run that followed it did."""
    expected = Pace(plan.prediction.production, plan.prediction.consumption)
    return PaceComparison(plan.split.name, expected, measured)
