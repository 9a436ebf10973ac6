"""How a run ended, or stands: the content of `summary.json`, and the same in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from tianji.core import checkpoint
from tianji.core.columns import command, labelled, wrapped
from tianji.core.counts import Count
from tianji.core.errors import USER_MISTAKE
from tianji.core.status import Status
from tianji.core.versions import versions
from tianji.core.wording import count_of, number, percent
from tianji.job.job import Job
from tianji.job.wiring import n_bytes_of
from tianji.machine import resources
from tianji.machine.resources import Share
from tianji.observe import metrics, rates
from tianji.observe.bottleneck import bottleneck
from tianji.observe.mended import mended
from tianji.observe.pace import PaceComparison
from tianji.observe.panel import span
from tianji.observe.rates import at_start, homes_in
from tianji.observe.times import Times
from tianji.observe.watch import WINDOW, Progress, apart
from tianji.roles.role_specs import Kind, kind_of, roles_of

COUNTS_OF_KIND: dict[Kind | None, dict[str, Count]] = {
    Kind.ACTOR: {"produced": Count.PRODUCED, "weights_taken": Count.WEIGHTS_TAKEN},
    Kind.INFERENCE: {"produced": Count.PRODUCED, "weights_taken": Count.WEIGHTS_TAKEN},
    Kind.BUFFER: {"received": Count.RECEIVED, "dropped": Count.DROPPED},
    Kind.LEARNER: {"consumed": Count.CONSUMED},
    Kind.REDUCER: {"fusions": Count.FUSIONS},
}
SHORTEST_SECONDS = 1.0  # of training that a rate is taken over; of less, stopping counts as well
LABEL_WIDTH = 11  # of the words at the beginning of a line
COUNTS_OF_ALL = {"version": Count.VERSION, "pushed": Count.PUSHED, "refused": Count.REFUSED}


Line: TypeAlias = tuple[str, str]  # a label, which may be none, and what it is of


def summarise(
    job: Job,
    engine: str,
    progress: Progress,
    times: Times,
    ticked_at: float,
    now: float,
    shares: Mapping[str, Share],
) -> dict[str, Any]:
    """Everything that was measured; training was last seen going on at `ticked_at`."""
    seconds = elapsed(progress, ticked_at)
    counted = seconds if seconds >= SHORTEST_SECONDS else progress.elapsed(now)
    summary = {
        "config": job.config.name,
        "engine": engine,
        "seed": job.config.exp.seed,
        "planning_seconds": times.planning(),
        "startup_seconds": times.startup(progress),
        "starting_seconds": times.starting(progress),
        "first_consumed_seconds": times.first_consumed(progress),
        "final_time_seconds": None if progress.solved_at is None else round(seconds, 3),
        "wall_seconds": round(times.wall(now), 3),
        "env_steps": progress.produced,
        "episodes": progress.n_episodes,
        "updates": progress.updates,
        "mean_return_100": progress.mean_return,
        "learned_return_100": progress.learned_return,
        "win_ratio_100": progress.win_ratio,
        "stop_win_ratio": job.config.stop_win_ratio,
        "stop_return": job.stop_return,
        "stop_return_of": job.config.exp.stop_return_of,
        "produced": progress.produced,
        "received": progress.received,
        "consumed": progress.consumed,
        "dropped": progress.dropped,
        "missing_steps": progress.missing_steps,  # produced, not received and not on their way
        "late_priorities": progress.late_priorities,
        "groups": job.config.n_groups,
        "fusions": progress.fusions,
        "fusion_distance": progress.distance,
        "fusion_kl": progress.fusion_kl,
        "restarts": progress.restarts,  # of processes
        "faults": [asdict(fault) for fault in progress.faults],  # the last ones that were mended
        **progress.mended,
        "lost": list(progress.lost),
        "resumes": times.resumes,
        "training_seconds": round(seconds, 3),
        "counted_seconds": round(counted, 3),  # that the rates below are of
        "production_per_second": _per_second(progress.produced, counted),
        "receiving_per_second": _per_second(progress.received, counted),
        "consumption_per_second": _per_second(progress.consumed, counted),
        "replay_ratio": {"target": job.ratio, "measured": metrics.ratio_of(progress, job)},
        "bottleneck": bottleneck(progress, job, engine),
        **_ages(job, progress),
        "roles": _roles(job, engine, progress, shares),
        "memory_bytes": n_bytes_of(job),
        "versions": versions(),
    }
    clean: dict[str, Any] = _finite(summary)
    return clean


def elapsed(progress: Progress, now: float) -> float:
    """Seconds of training: from the moment all roles were ready to the target, or until now."""
    return progress.elapsed(now if progress.solved_at is None else progress.solved_at)


def _ages(job: Job, progress: Progress) -> dict[str, Any]:
    """How old the samples were that were learned from."""
    return {
        "staleness": progress.staleness.summary(),
        "ess": progress.ess,
        "least_ess": progress.least_ess,
        "correction": job.algorithm.correction(job.task),
        "age": progress.age.summary(),
        "freshness": {
            "target": job.sampling.freshness,
            "measured": progress.freshness if progress.consumed else None,
        },
        "new": progress.new if progress.consumed else None,
        "histograms": {  # rows of [lower edge, count]
            "staleness_updates": progress.staleness.rows(),
            "age_steps": progress.age.rows(),
            "new_percent_of_batch": progress.new_percent.rows(),
        },
    }


def _roles(
    job: Job, engine: str, progress: Progress, shares: Mapping[str, Share]
) -> dict[str, dict[str, Any]]:
    spent = rates.shares(at_start(progress), progress.counts, homes_in(job, engine))
    cores = _cores(job, shares)
    roles: dict[str, dict[str, Any]] = {}
    for name, counts in progress.counts.items():
        said = COUNTS_OF_KIND[kind_of(name)] | COUNTS_OF_ALL
        counted = {key: int(counts[place]) for key, place in said.items()}
        roles[name] = spent[name].row(kind_of(name)) | {"cores": cores[name]} | counted
    return roles


def _per_second(count: int, seconds: float) -> float:
    return round(count / seconds, 1) if seconds > 0 else 0.0


def _cores(job: Job, shares: Mapping[str, Share]) -> dict[str, tuple[int, ...]]:
    """The cores of each role; those without a share of their own use what this process has."""
    here = Share(resources.available_cores(), 1)
    return {role.name: shares.get(role.home, here).cores for role in roles_of(job.config)}


def _finite(value: Any) -> Any:
    """`value` as JSON can hold it, at any depth."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return metrics.finite(value)


def describe(
    summary: dict[str, Any], folder: Path, exit_status: int = 0, width: int | None = None
) -> str:
    """What happened, in a few plain lines; a mistake of the user's is nothing to go on with."""
    lines = []
    for label, text in _said(summary, folder):
        if label:
            lines.append(labelled(label, text, width, LABEL_WIDTH))
        else:
            lines += wrapped(text, width, indent=2)
    unfinished = summary["status"] in (Status.INTERRUPTED, Status.FAILED)
    if unfinished and exit_status != USER_MISTAKE:
        lines += _go_on(folder, width)
    return "\n".join(lines)


def _said(summary: dict[str, Any], folder: Path) -> list[Line]:
    lines = _outcome(summary)
    if summary["startup_seconds"] is not None:
        lines.append(("time", _times(summary)))
    if summary["updates"]:
        lines += _measured(summary)
    return [*lines, ("run", str(folder))]


def _times(summary: dict[str, Any]) -> str:
    startup, whole = span(summary["starting_seconds"]), span(summary["wall_seconds"])
    planning = summary.get("planning_seconds")  # a summary of an earlier version has none
    planned = f", {span(planning)} of it to plan" if planning else ""
    start = f"{startup} to start" if planned else f"{startup} of it to start"
    return f"{whole} in all{planned}, {start}{_resumed(summary['resumes'])}"


def _go_on(folder: Path, width: int | None) -> list[str]:
    """What to do next, and where that begins."""
    if not (folder / "config.json").is_file():
        gone = "its folder was removed while it trained: there is nothing to resume"
        return [labelled("checkpoint", gone, width, LABEL_WIDTH)]
    found = checkpoint.folders_of(folder)
    saved = f"{found[-1].name} is the newest" if found else "none: the run would begin again"
    return [
        labelled("checkpoint", saved, width, LABEL_WIDTH),
        *command(["tianji", "resume", str(folder)], width, f"  {'go on':<{LABEL_WIDTH}}"),
    ]


def _resumed(times: int) -> str:
    if not times:
        return ""
    return ", resumed once" if times == 1 else f", resumed {times} times"


def _outcome(summary: dict[str, Any]) -> list[Line]:
    reached, status, target = _reached(summary), Status(summary["status"]), _target(summary)
    if status is Status.SOLVED:
        aim = "" if target is None else f" (target {target})"
        return [("", f"Solved in {span(summary['final_time_seconds'])}: {reached}{aim}.")]
    missed = [] if target is None else [("target", target)]
    if summary["error"]:
        why = f"{status.words}: {_reason(summary['error'])}"
        return [("", why), ("return", reached), *missed]
    return [("", f"{status.words}: {reached}."), *missed]


def _reason(error: str) -> str:
    """The one line of an error, of a role's last words or of a traceback that says most."""
    head, *rest = [line for line in error.splitlines() if line.strip()]
    role, failed, _ = head.partition(" failed with exit status ")
    if not rest or not (failed or head.startswith("Traceback")):
        return head.rstrip(":")
    deepest = max((i for i, line in enumerate(rest) if line.startswith("  File ")), default=None)
    if deepest is None:  # an error that says it all
        name = role.partition(" (")[0]  # without its rank and machine
        own = (line.removeprefix(f"{name}: ") for line in rest if line.startswith(f"{name}: "))
        said = next(own, rest[-1])
    else:
        said = next((line for line in rest[deepest:] if not line.startswith(" ")), rest[-1])
    if not failed:
        role = rest[-1].removeprefix("in ") if rest[-1].startswith("in ") else ""
    return f"{role}: {said}" if role else said


def _reached(summary: dict[str, Any]) -> str:
    mean, n = summary["mean_return_100"], min(WINDOW, summary["episodes"])
    if mean is None:
        return "no episode ended"
    learned = apart(mean, summary["learned_return_100"])
    won = summary.get("win_ratio_100")  # a summary of an earlier version has none
    wins = "" if won is None else f", won {percent(won)}"
    return f"mean return {number(mean)} over {n} episodes{learned}{wins}"


def aimed_at(summary: Mapping[str, Any]) -> float | None:
    """The mean return that `stop_return` is about."""
    per_life = summary.get("stop_return_of") == "life"
    mean: float | None = summary.get("learned_return_100" if per_life else "mean_return_100")
    return mean


def _target(summary: dict[str, Any]) -> str | None:
    """As in `475, not reached`, or `won 90 %, not reached`; the one reached if it is one of two."""
    wins, returns = _win_target(summary), _return_target(summary)
    both = [words for words in (returns, wins) if words is not None]
    reached = [words for words in both if "not reached" not in words]
    return next(iter([*reached, *both]), None)


def _win_target(summary: dict[str, Any]) -> str | None:
    won, target = summary.get("win_ratio_100"), summary.get("stop_win_ratio")
    if target is None:
        return None
    missed = won is None or won < target
    return f"won {percent(target)}{', not reached' * missed}"


def _return_target(summary: dict[str, Any]) -> str | None:
    mean, target = aimed_at(summary), summary["stop_return"]
    if target is None:
        return None
    if mean is None or mean < target:
        return f"{target:,g}, not reached"
    return f"{target:,g} over {WINDOW} episodes" if summary["episodes"] < WINDOW else f"{target:,g}"


def _measured(summary: dict[str, Any]) -> list[Line]:
    ratio, stale = summary["replay_ratio"], summary["staleness"]
    made, learned = summary["production_per_second"], summary["consumption_per_second"]
    measured = "-" if ratio["measured"] is None else f"{ratio['measured']:#.3g}"
    used = f"{measured} samples consumed per sample produced (target {ratio['target']:#.3g})"
    rates = f"produced {made:,.0f} steps/s, consumed {learned:,.0f} samples/s"
    steps, episodes, updates = (summary[n] for n in ("env_steps", "episodes", "updates"))
    old = f"samples were {stale['p50']:,g} updates old (median), {stale['max']:,g} at most"
    if (ess := summary.get("ess")) is not None and stale["max"]:
        old += f"; they were worth {percent(ess)} of new ones{_corrected(summary)}"
    lines = [
        ("work", f"{steps:,} steps, {episodes:,} episodes, {updates:,} updates"),
        ("rates", rates + _short(summary)),
        ("replay", used),
        ("staleness", old),
    ]
    if planned := summary.get("plan"):
        lines.append(("plan", PaceComparison.from_json(planned).sentence()))
    if summary["fusions"]:
        words = f"{summary['fusions']:,} of {summary['groups']} groups"
        moved = summary.get("fusion_kl")  # a summary of an earlier version has none
        kl = "" if moved is None else f", KL {moved:.2g}"
        lines.append(("fusions", f"{words}, {summary['fusion_distance']:.3g} apart at last{kl}"))
    if played := summary.get("evaluation"):
        best, last = played["best"], played["last"]
        words = f"{played['n']:,} in training: best mean return {number(best)}, last {number(last)}"
        if (won := played.get("best_win_ratio")) is not None:
            words += f"; won at best {percent(won)}, at last {percent(played['last_win_ratio'])}"
        lines.append(("evaluation", words))
    if decided := summary.get("rebalancing"):
        n, words = count_of(len(decided), "decision"), _at_last(decided, summary["groups"])
        lines.append(("balance", f"{n} (balance.jsonl), at last {words}"))
    if summary.get("restarts"):
        lines.append(("restarts", _restarts(summary)))
    if lost := summary.get("lost"):  # a summary of an earlier version has none
        lines.append(("lost", _without(lost)))
    if broken := mended(summary):  # one of an earlier version has none of it
        lines.append(("mended", broken))
    if summary["dropped"]:
        lines.append(("dropped", f"{summary['dropped']:,} samples for their age"))
    if late := summary.get("late_priorities"):  # one of an earlier version has none
        lines.append(("priorities", f"{late:,} came too late"))
    return [*lines, ("limit", summary["bottleneck"])]


def _corrected(summary: dict[str, Any]) -> str:
    """At the worst, and what made up for it."""
    least, by = summary.get("least_ess"), summary.get("correction")
    worst = "" if least is None else f", {percent(least)} at the worst"
    return f"{worst}, {f'corrected by {by}' if by else 'not corrected'}"


def _at_last(decided: list[dict[str, Any]], n_groups: int) -> str:
    """What was last decided of each number, and of which groups where there are several."""
    last: dict[str, dict[int, int]] = {}  # by unit and group
    for row in decided:
        last.setdefault(row["unit"], {})[row["group"]] = row["after"]
    words = []
    for unit, of_group in last.items():
        for n in sorted(set(of_group.values())):
            which = ", ".join(str(group) for group in sorted(of_group) if of_group[group] == n)
            words.append(f"{n} {unit}" + (f" (group {which})" if n_groups > 1 else ""))
    return ", ".join(words)


def _restarts(summary: Mapping[str, Any]) -> str:
    """How often a process was replaced, and for how long it was away."""
    n, away = summary["restarts"], [f["away_seconds"] for f in summary.get("faults", [])]
    known = sorted(seconds for seconds in away if seconds is not None)
    median = f", back after {span(known[len(known) // 2])} (median)" if known else ""
    return f"{count_of(n, 'process')} lost and replaced{median}"


def _without(lost: list[str]) -> str:
    """Who was lost, and what became of the run; actors stand apart from the reducer."""
    reducers = [name for name in lost if kind_of(name) is Kind.REDUCER]
    others = [name for name in lost if name not in reducers]
    words = {"training went on without": others, "the groups were not averaged any more": reducers}
    return "; ".join(f"{', '.join(names)}: {then}" for then, names in words.items() if names)


def _short(summary: dict[str, Any]) -> str:
    """Says over how little time the rates were taken, where there was no more."""
    counted = summary.get("counted_seconds")  # a summary of an earlier version has none
    if counted is None or counted == summary["training_seconds"]:
        return ""
    return f", over {span(counted)} with the end of the run: it trained for less than a second"
