"""How a run goes on: which checkpoint it goes on from, and what is lost."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tianji.config import Config, reload
from tianji.config.section import shown
from tianji.core import checkpoint
from tianji.core.checkpoint import Checkpoint
from tianji.core.errors import TianJiError
from tianji.core.json_file import number, read_json, text, whole
from tianji.core.status import ENDED, Status
from tianji.core.tensorfile import Corrupt
from tianji.core.wording import percent
from tianji.observe.summary import aimed_at
from tianji.roles.role_specs import roles_of
from tianji.roles.role_state import is_bare
from tianji.runs.folder import MORE, refuse_checkpoint, refuse_unfit, rewind
from tianji.runs.older_config import config_of
from tianji.runs.trust import refuse_strange
from tianji.runs.weights_file import FINAL, rewind_evaluations

Fits: TypeAlias = Callable[[Any], bool]


def _is_count(value: Any) -> bool:
    return whole(value) is not None


def _is_finite(value: Any) -> bool:
    return number(value) is not None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_measured(value: Any) -> bool:
    """Whether a game can have said it: NaN and Inf too, if it is one's own."""
    return isinstance(value, float) or _is_finite(value)


def _is_evaluation(value: Any) -> bool:
    """Whether this is a mean return, and the environment steps by then."""
    return (
        isinstance(value, list)
        and len(value) == 2
        and _is_measured(value[0])
        and _is_count(value[1])
    )


def _or_none(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


def _each(fits: Fits) -> Fits:
    return lambda value: isinstance(value, list) and all(map(fits, value))


WATCHED: dict[str, Fits] = {  # `Watch.state`; older versions wrote less
    "returns": _each(_is_measured),
    "learned": _each(_is_measured),
    "won": _each(_or_none(_is_measured)),
    "lengths": _each(_is_count),
    "episodes": _is_count,
    "fusions": _or_none(_is_count),
    "restarts": _or_none(_is_count),
    "lowest_ess": _or_none(_is_finite),
    "elapsed_seconds": _is_finite,
}
TIMES: dict[str, Fits] = {  # `Times.state`
    "resumes": _is_count,
    "wall_seconds": _is_finite,
    "planning_seconds": _is_finite,
    "startup_seconds": _or_none(_is_finite),
    "starting_seconds": _or_none(_is_finite),
    "first_consumed_seconds": _or_none(_is_finite),
}
EVALUATED: dict[str, Fits] = {  # `Evaluated`
    "n": _is_count,
    "best": _or_none(_is_measured),
    "last": _or_none(_is_evaluation),
    "best_won": _or_none(_is_finite),
    "last_won": _or_none(_is_finite),
}
DECISION: dict[str, Fits] = {  # a line of `balance.jsonl`
    "elapsed_s": _is_finite,
    "group": _is_count,
    "kind": _is_text,
    "before": _is_count,
    "after": _is_count,
    "why": _is_text,
    "unit": _is_text,
}
NEEDED = ("returns", "lengths", "episodes", "elapsed_seconds")  # of what was watched


@dataclass(frozen=True)
class Resumed:
    """Where a run goes on."""

    saved: Checkpoint | None  # None: it had saved nothing, and begins again
    facts: dict[str, Any] = field(default_factory=dict)  # what the launcher knew then
    notices: tuple[str, ...] = ()

    @property
    def env_steps(self) -> int:
        """Environment steps that had been made."""
        return 0 if self.saved is None else self.saved.env_steps

    @property
    def version(self) -> int:
        """Updates of the first group that had been made."""
        return 0 if self.saved is None else self.saved.version

    def take_up(self, folder: Path) -> None:
        """Makes the folder that of a run in progress again; what came later is set aside."""
        try:
            rewind(folder, self.env_steps)
            rewind_evaluations(folder, self.env_steps)
            for ended in (folder / "summary.json", folder / "checkpoints" / FINAL):
                if ended.exists():
                    os.replace(ended, _aside(ended))
        except OSError as error:
            raise TianJiError(
                f"{error.filename}: {error.strerror}: the run cannot be taken up; make room or "
                "mend its folder, nothing was lost"
            ) from error


def reopen(folder: Path, overrides: Sequence[str], trust: bool = False) -> tuple[Config, str]:
    """The configuration of a run, with some keys said anew, and the engine it was trained with.

    Raises if it has ended and is told nothing new, or would end before it has begun, and if it
    names code of which nobody says that it is good.
    """
    file = folder / "config.json"
    if folder.is_file():
        raise TianJiError(f"{folder} is a configuration file, not a run: tianji train {folder}")
    about = read_json(file)
    if not isinstance(about.get("config"), dict):
        raise TianJiError(f"{folder} holds no run to resume: {file} is missing, or not ours")
    before, now = (reload(config_of(about), str(file), given) for given in ((), overrides))
    refuse_strange(now, about, folder, trust)
    refuse_unfit(folder, now, extend=True)
    summary = read_json(folder / "summary.json")
    if (status := text(summary.get("status"))) in ENDED:
        _refuse_ended(folder, Status(status), summary, before, now)
    _refuse_reached(folder, before, now, status in ENDED)
    return now, str(about.get("engine", "process"))


def _refuse_ended(
    folder: Path, status: Status, summary: dict[str, Any], before: Config, now: Config
) -> None:
    """Raises unless a run that has ended is told another end."""
    if status is not Status.SOLVED:
        if _ends(before) == _ends(now):
            raise TianJiError(
                f"{folder} has ended ({status}): give it more to do, as in {MORE[status]}"
            )
        return
    mean, target = number(aimed_at(summary)), now.stop_return
    still = mean is not None and target is not None and mean >= target
    won, wanted = number(summary.get("win_ratio_100")), now.stop_win_ratio
    still = still or (won is not None and wanted is not None and won >= wanted)
    if still or (before.stop_return == target and before.stop_win_ratio == wanted):
        found = "" if mean is None else f" with a mean return of {mean:,g}"
        found += "" if won is None else f" and {percent(won)} won"
        more = MORE[status] if wanted is None else "--set exp.stop_win_ratio=W"
        raise TianJiError(
            f"{folder} was solved{found}: it goes on only with a target above that, as in {more}"
        )


def _ends(config: Config) -> dict[str, float | None]:
    """What a run ends by, by the name of the key."""
    exp = config.exp
    return {
        "exp.train_steps": exp.train_steps,
        "exp.episodes": exp.episodes,
        "exp.max_seconds": exp.max_seconds,
        "exp.stop_return": config.stop_return,
        "exp.stop_win_ratio": config.stop_win_ratio,
        "learner_cfg.exit_val.learn_step": config.max_updates,
        "global_cfg.exit_val.fusion_step": config.max_fusions,
    }


def _refuse_reached(folder: Path, before: Config, now: Config, ended: bool) -> None:
    """Raises if a limit was reached before; one that an unfinished run had all along is kept."""
    if (found := _newest_facts(folder)) is None:
        return
    saved, facts = found
    watched, said, was = facts["watch"], _ends(now), _ends(before)
    made = {
        "exp.train_steps": saved.env_steps,
        "exp.episodes": watched["episodes"],
        "exp.max_seconds": watched["elapsed_seconds"],
        "learner_cfg.exit_val.learn_step": saved.version,
        "global_cfg.exit_val.fusion_step": watched.get("fusions"),
    }
    for name, done in made.items():
        limit = said[name]
        if limit is None or done is None or done < limit or not (ended or limit != was[name]):
            continue
        raise TianJiError(
            f"{folder} is beyond {name}={limit} already, at {round(done, 1):,}: "
            f"give it more, as in --set {name}={math.ceil(2 * done)}"
        )


def _newest_facts(folder: Path) -> tuple[Checkpoint, dict[str, Any]] | None:
    """The newest checkpoint that can say what the launcher knew, without a look at its samples."""
    for path in reversed(checkpoint.folders_of(folder)):
        with suppress(Corrupt):
            saved = checkpoint.open_checkpoint(path)
            return saved, facts_of(saved)
    return None


def facts_of(saved: Checkpoint) -> dict[str, Any]:
    """What the launcher knew; `Corrupt` where what it needs is missing or of another kind."""
    said, where = saved.json("run.json"), f"{saved.folder}/run.json:"
    played = _fitting(f"{where} evaluated", said.get("evaluated", {}), EVALUATED)
    for best, last in (("best", "last"), ("best_won", "last_won")):
        if (played.get(best) is None) != (played.get(last) is None):
            raise Corrupt(f"{where} evaluated has one of {best} and {last}, want both or none")
    decided = said.get("rebalancing", [])
    if not isinstance(decided, list):
        raise Corrupt(f"{where} rebalancing is {shown(decided)}, which no run writes")
    return {
        "watch": _fitting(f"{where} watch", said.get("watch"), WATCHED, NEEDED),
        "run": _fitting(f"{where} run", said.get("run", {}), TIMES),
        "evaluated": played,
        "rebalancing": [
            _fitting(f"{where} rebalancing", row, DECISION, DECISION) for row in decided
        ],
    }


def _fitting(
    where: str, found: Any, fields: Mapping[str, Fits], needed: Collection[str] = ()
) -> dict[str, Any]:
    """Those `fields` that were found, each of its type; what else there is, nobody asks for."""
    if not isinstance(found, dict):
        raise Corrupt(f"{where} is {shown(found)}, which no run writes")
    for name, fits in fields.items():
        if name not in found and name in needed:
            raise Corrupt(f"{where} has no {name}, which every run writes")
        if name in found and not fits(found[name]):
            raise Corrupt(f"{where}.{name} is {shown(found[name])}, which no run writes")
    return {name: found[name] for name in fields if name in found}


def find(folder: Path, config: Config) -> Resumed:
    """The newest intact checkpoint of an unfinished run, and what there is to say about it.

    What a process that died left half written is removed.
    """
    checkpoint.sweep(folder)  # before any role begins to write there
    saved, broken = checkpoint.newest(folder, facts_of)
    notices = [f"{line}; an older one is used" for line in broken]
    if saved is None:
        notices.append(f"{folder} holds a run that had saved nothing: it begins again")
        return Resumed(None, {}, tuple(notices))
    refuse_checkpoint(saved, config)
    steps, updates = saved.env_steps, saved.updates
    notices.append(
        f"resumed from {saved.folder.name}: {steps:,} steps and {updates:,} updates were made"
    )
    if (lost := _steps_seen(folder) - steps) > 0:
        notices.append(f"{lost:,} steps that were made after it are done again")
    notices += _losses(saved, config)
    return Resumed(saved, facts_of(saved), tuple(notices))


def _steps_seen(folder: Path) -> int:
    """Environment steps that the run had made when it was last heard of."""
    found = [
        read_json(folder / name).get("env_steps") for name in ("progress.json", "summary.json")
    ]
    return max((steps for steps in found if isinstance(steps, int)), default=0)


def _aside(path: Path) -> Path:
    """A name for what a run ended with before it was resumed; no two of them share one."""
    number = 1
    while True:
        name = path.with_name(f"{path.stem}.before{'' if number == 1 else number}{path.suffix}")
        if not name.exists():
            return name
        number += 1


def _losses(saved: Checkpoint, config: Config) -> list[str]:
    """What cannot go on as it was."""
    lines = []
    absent, without_env = [], False
    for name in (
        role.name for role in roles_of(config)
    ):  # one at a time: each may hold a descriptor
        if (part := saved.part(name)) is None or is_bare(part):
            absent.append(name)
        elif part.get("env", 0) is None:
            without_env = True
    if absent:
        lines.append(f"nothing was saved of {', '.join(absent)}: it begins anew")
    if without_env:
        lines.append(
            "the episodes in progress begin anew: the environment has no state() and restore()"
        )
    if saved.manifest["replay"] != "kept":
        lines.append(f"the samples were {saved.manifest['replay']}: the store fills again")
    return lines
