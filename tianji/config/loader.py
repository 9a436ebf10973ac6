"""From the names of a config file, the paper's, to a checked `Config`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from tianji.config.binder import bind, check_name
from tianji.config.environment import EnvironmentConfig
from tianji.config.keys import (
    AGENT_NAMES,
    HEAD_NAMES,
    HEADS,
    AgentConfig,
    Config,
    ExpConfig,
    ModelConfig,
    from_section,
)
from tianji.config.parallel import ParallelConfig
from tianji.config.reader import Source, parse, parse_value, read_text
from tianji.config.release import called_here, evaluated, translated
from tianji.config.section import Place, Section, nearest

SECTIONS = ("environment", "exp", "agent", "model", "hyp", "parallel_parameters")
BLOCKS = ("embryo", "mixer_model", "hooks")
PARALLEL = ("global_cfg", "learner_cfg", "actor_cfg", "buffer_cfg")
IDLE = {
    "hooks": "a run always logs, draws and saves the same things",
    "mixer_model": "it belongs to the embryo of QMIX",
}


def load(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Config:
    """Reads and checks a config file; each of `overrides`, such as "hyp.lr=0.1", replaces one key.

    Whatever is wrong is a `TianJiError` that begins with file and line, or with the override.
    """
    file = os.fspath(path)
    source = parse(read_text(file), file)
    stem = os.path.splitext(os.path.basename(file))[0]
    return resolve(source, overrides, stem, os.path.dirname(os.path.abspath(file)))


def reload(data: Mapping[str, Any], file: str, overrides: Sequence[str] = ()) -> Config:
    """The configuration that `Config.to_json` wrote into `file`, with some keys replaced."""
    place = Place(file)
    section = Section.of(data, place)
    tree = section.replaced("parallel_parameters", section.get_section("parallel"), place)
    for override in overrides:
        tree = _overridden(tree, override)
    tree = tree.replaced("parallel", tree["parallel_parameters"], place)
    return from_section(tree.without("parallel_parameters"), place)


def resolve(source: Source, overrides: Sequence[str], name: str, folder: str) -> Config:
    """The `Config` that a file's names and the overrides come to."""
    notices: list[str] = []
    tree = _sections(source, notices)
    if "hooks" in source.names:  # which only files of the release have
        tree = evaluated(tree, notices)
    for override in overrides:
        tree = _overridden(tree, override)
    tree = translated(tree, notices)

    # First: of a whole job that cannot be had, this is the plainest news.
    agent = bind(AgentConfig, tree.get_section("agent"), "agent", notices)

    def bound(kind: type[Any], section: str) -> Any:
        return bind(kind, tree.get_section(section), section, notices, {"agent": agent})

    environment = bound(EnvironmentConfig, "environment")
    config = Config(
        name=name,
        folder=folder,
        environment=environment,
        exp=bound(ExpConfig, "exp"),
        agent=agent,
        model=bound(ModelConfig, "model"),
        hyp=tree.get_section("hyp"),
        parallel=bound(ParallelConfig, "parallel_parameters"),
        notices=(),
    )
    notices += _outvoted(config, tree) + _without_fusion(config, tree)
    return Config(**{**vars(config), "notices": tuple(notices)})


def _sections(source: Source, notices: list[str]) -> Section:
    """The six sections out of all that the file names, the embryo's model and hyp in place."""
    names = source.names
    for name in names.written:
        if name not in (*SECTIONS, *BLOCKS) and name not in source.used:
            raise names.at(name).error(_stray(name))
    for name, reason in IDLE.items():
        if name in names and name not in source.used:
            notices.append(f"{names.at(name)}: {name} has no effect here: {reason}")
    agent = names.get_section("agent")
    holder = agent if "embryo" in agent else names
    embryo = holder.get("embryo")
    tree = names.without(*(name for name in names.written if name not in SECTIONS))
    if embryo is None:
        return tree
    if isinstance(embryo, Section):
        if agent.get("type") in AGENT_NAMES.lost:  # says more than the name of its head would
            check_name(agent, "type", AGENT_NAMES, "agent")
        tree = _from_embryo(tree, embryo, source, notices)
        embryo = embryo.get("type")
    return tree.replaced("agent", _named(agent, embryo, holder.at("embryo")), names.at("agent"))


def _stray(name: str) -> str:
    """What to say about a name that is neither ours nor part of another."""
    if name in PARALLEL:
        return f"{name} belongs inside parallel_parameters = dict({name}=...)"
    hint = called_here(name) or nearest(name, (*SECTIONS, *BLOCKS), "The sections are")
    return f"{name!r} is no section and no other line uses it. {hint}"


def _from_embryo(tree: Section, embryo: Section, source: Source, notices: list[str]) -> Section:
    """The sections with the embryo's model and hyp, which win over those of the top level."""
    check_name(embryo, "type", HEAD_NAMES, "embryo")
    known = ("type", "model", "hyp")
    for key in embryo.written:
        if key not in (*known, *BLOCKS):
            raise embryo.at(key).error(
                f"embryo has no key {key!r}. {nearest(key, known, 'Its keys')}"
            )
    if "hooks" in embryo:
        notices.append(f"{embryo.at('hooks')}: embryo.hooks has no effect here: {IDLE['hooks']}")
    if "mixer_model" in embryo:
        tree = tree.replaced("mixer_model", embryo["mixer_model"], embryo.at("mixer_model"))
    for key in ("model", "hyp"):
        if key not in embryo:
            continue
        if key in tree and key not in source.used:
            notices.append(f"{tree.at(key)}: {key} has no effect here: the embryo has its own")
        tree = tree.replaced(key, embryo[key], embryo.at(key))
    return tree


def _named(agent: Section, head: Any, place: Place) -> Section:
    """The agent with its embryo's type, and with its own if only the embryo says it."""
    agent = agent.without("embryo")
    if head is not None:
        agent = agent.replaced("embryo", head, place)
    types = [type_ for type_, name in HEADS.items() if name == head]
    if "type" not in agent and types:
        agent = agent.replaced("type", types[0], place)
    return agent


def _overridden(tree: Section, override: str) -> Section:
    """The sections with one key replaced, as `--set section.key=value` asks."""
    path, equals, text = override.partition("=")
    path, place = path.strip(), Place(f"--set {path.strip()}")
    keys = path.split(".")
    if not equals or not text.strip() or not all(keys):
        raise Place(f"--set {override}").error("want section.key=value, as in hyp.lr=0.001")
    for prefix in (["agent", "embryo"], ["embryo"]):
        if keys[: len(prefix)] == prefix and keys[len(prefix) :][:1] in (["model"], ["hyp"]):
            keys = keys[len(prefix) :]
    if keys[0] in PARALLEL:
        keys = ["parallel_parameters", *keys]
    if keys[0] not in SECTIONS:
        ours = called_here(keys[0])
        hint = ours or nearest(keys[0], (*SECTIONS, *PARALLEL), "The sections are")
        if len(keys) == 1 and not ours:
            hint += f" A key stands behind its section, as in hyp.{override}"
        raise place.error(f"there is no section {keys[0]!r}. {hint}")
    return _put(tree, keys, parse_value(text, place), place)


def _put(section: Section, keys: list[str], value: Any, place: Place) -> Section:
    """`section` with `value` at the path `keys`; sections on the way are made if need be."""
    same = [word for word in section.written if word.lower() == keys[0].lower()]
    word = same[0] if same else keys[0]
    if len(keys) == 1:
        return section.replaced(word, value, place)
    inner = section.get(word)
    if inner is None:
        inner = Section(place=place)
    if not isinstance(inner, Section):
        raise place.error(f"{word} is no section")
    return section.replaced(word, _put(inner, keys[1:], value, place), section.at(word))


def _outvoted(config: Config, tree: Section) -> list[str]:
    """Notices about a second stop condition of one kind that says something else."""
    sections = tree.get_section("parallel_parameters")
    section, groups = (sections.get_section(name) for name in ("learner_cfg", "global_cfg"))
    own, all_ = section.get_section("exit_val"), groups.get_section("exit_val")
    learner, together = config.parallel.learner_cfg, config.parallel.global_cfg.exit_val
    returns, wins = (config.stop_return, "return"), (config.stop_win_ratio, "win ratio")
    given = (
        (section, "learner_cfg", "finish_reward", learner.finish_reward, *returns),
        (own, "exit_val", "reward", learner.exit_val.reward, *returns),
        (own, "exit_val", "win_ratio", learner.exit_val.win_ratio, *wins),
        (all_, "exit_val", "win_ratio", together.win_ratio, *wins),
    )
    return [
        f"{place.at(key)}: {where}.{key} has no effect here: training ends at a {what} of "
        f"{used:g}, which is set elsewhere"
        for place, where, key, value, used, what in given
        if value is not None and value != used
    ]


def _without_fusion(config: Config, tree: Section) -> list[str]:
    """Notices about keys of fusion, where there is none."""
    if config.fuses:
        return []
    sections = tree.get_section("parallel_parameters")
    group, learner = (sections.get_section(name) for name in ("global_cfg", "learner_cfg"))
    why = "there is one group" if config.n_groups == 1 else "use_group_parallel is False"
    given = (
        (group.get_section("exit_val"), "exit_val", "fusion_step"),
        (learner, "learner_cfg", "send_root_interval"),
    )
    return [
        f"{section.at(word)}: {where}.{key} has no effect here: {why}, and no fusion"
        for section, where, key in given
        for word in section.written
        if word.lower() == key and section.get(word) is not None
    ]
