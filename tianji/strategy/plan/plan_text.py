"""A plan in plain words and numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tianji.core.columns import fitted, labelled, wrapped
from tianji.core.wording import count_of, duration, per_second
from tianji.strategy.plan.costs import actor_cost_at
from tianji.strategy.plan.model import EQUAL, trajectory_costs
from tianji.strategy.plan.profile import Profile, Work
from tianji.strategy.plan.solver import Choice
from tianji.strategy.plan.split import Bound, Prediction, Split

WAITING = 0.5  # an actor that needs its core for less than this share of its time waits
AS_NEAR = 0.02  # splits whose imbalances differ by no more are equally near to equal
LABEL_WIDTH = 12  # of the words at the beginning of a line
HEAD = (
    *("", "split", "groups", "learner cores", "actors", "envs", "steps/s", "samples/s"),
    *("could make", "could take", "limit"),
)
LEAST = ("could make", "could take", "samples/s", "groups", "learner cores")  # first ones first


def describe(
    profile: Profile,
    choices: list[Choice],
    configured: Choice | None,
    width: int | None = None,
    cores: int | None = None,
    changed: Sequence[str] = (),
    is_fused: bool = True,
) -> str:
    """The chosen split, what is expected of it, and the next-best ones with what limits each.

    `configured` is None where the configuration's own split does not fit. `cores` are those of each
    host, of which some may stay idle; `changed` are the options that changed the job itself, and
    the row of the configuration with it. Of several groups nobody averages the parameters unless
    the configuration `is_fused`.
    """
    about = [*_about(profile, choices, cores), *_cautions(profile, choices[0].split, is_fused)]
    lines = [
        *(labelled(name, words, width, LABEL_WIDTH) for name, words in about),
        "",
        *_rows(choices, configured, width),
    ]
    if note := _about_config(configured, changed):
        lines += wrapped(note, width, indent=2)
    return "\n".join(lines)


def _about(profile: Profile, choices: list[Choice], cores: int | None) -> Iterable[tuple[str, str]]:
    work, split, found = profile.work, choices[0].split, choices[0].prediction
    yield "plan", roles_in(split) + _idle(split, work, cores)
    yield "buffer", "on a core of its own" if split.buffer_alone else "rides with the learner"
    pool = "all of it new" if split.pool == split.batch else f"from a pool of {split.pool:,}"
    yield (
        "batch",
        f"{split.batch:,} samples, {pool}: freshness P = {found.freshness:.3g}, as in serial "
        "training",
    )
    if said := _by_batch(profile, split):
        yield "learner", said
    measured = profile.machine.cores
    beyond = split.cores_per_host(work) > measured
    yield (
        "predicted",
        f"{per_second(found.production)} steps/s made, {per_second(found.consumption)} samples/s "
        f"learned from (replay ratio {work.ratio:g})"
        + f"; extrapolated: {count_of(measured, 'core')} were measured"
        * beyond,
    )
    yield "balance", _balance(found, choices)
    stale = "none: acting and learning take turns" if work.alternates else _updates(found)
    yield "staleness", stale
    yield "memory", _memory(split, found)
    costs = trajectory_costs(profile, split)
    making, sending, receiving = map(duration, (costs.making, costs.sending, costs.receiving))
    yield (
        "equation 1",
        f"T_sp {making}, T_sd {sending}, T_rv {receiving} per trajectory: beyond "
        f"{found.knee:,.0f} actors receiving alone would be the limit",
    )


def _cautions(profile: Profile, split: Split, is_fused: bool) -> Iterable[tuple[str, str]]:
    """What may make another split the better one, whatever is predicted."""
    work, computing = profile.work, actor_cost_at(profile, split.envs).computing
    if profile.was_disturbed:
        yield "others", disturbed(profile)
    if computing < WAITING and not split.one_core:
        yield (
            "actors",
            f"need a core for {100 * computing:.0f} % of their time, and wait for something "
            "else in the rest. A plan gives each a core; if what they wait for is not on these "
            "cores, more of them may be faster: compare with tianji train --set actor_cfg.num=N, "
            "without a plan",
        )
    if not work.on_policy and split.actors * split.envs > work.envs:
        own = max(1, work.envs // split.actors)
        yield (
            "envs",
            f"more than the configuration has ({work.envs} in a group), with which a result takes "
            f"more steps: where that matters, compare with --envs {own}",
        )
    if split.groups > 1:
        averaged = (
            "their parameters are averaged by a reducer, which needs next to no core; "
            if is_fused
            else "nothing averages their parameters (global_cfg.use_group_parallel=False); "
        )
        fewer = f": where that matters, compare with --groups {split.hosts}"  # each host has one
        yield (
            "groups",
            f"{averaged}each learns from its own samples, so a result takes more steps than with "
            f"one{fewer * (split.groups > split.hosts)}",
        )


def disturbed(profile: Profile) -> str:
    """What it means that others were at work."""
    return (
        f"kept {profile.foreign_cores:.1f} of {count_of(profile.machine.cores, 'core')} busy while "
        "this was measured: without them it is faster, and another split may be the best; measure "
        "again when they have gone"
    )


def _memory(split: Split, found: Prediction) -> str:
    """Of everything; of several hosts also what each needs."""
    whole = f"{found.memory_bytes / 2**20:,.0f} MiB"
    if split.hosts == 1:
        return whole
    each = found.memory_bytes / split.groups * split.groups_per_host
    return f"{whole} in all, {each / 2**20:,.0f} MiB on each host"


def _idle(split: Split, work: Work, cores: int | None) -> str:
    """As in `; 13 of 16 cores stay idle`; empty if none does, or nobody says how many there are."""
    used = split.cores_per_host(work)
    if cores is None or used >= cores:
        return ""
    each = " of each host" if split.hosts > 1 else ""
    stay = "stays" if cores - used == 1 else "stay"
    return f"; {cores - used:,} of {count_of(cores, 'core')}{each} {stay} idle"


def _about_config(configured: Choice | None, changed: Sequence[str]) -> str:
    """What its row does not say; empty if that is nothing."""
    if configured is None:
        return (
            "config: the configuration's own split needs more cores than these, so that there is "
            "no row for it"
        )
    if changed:
        return (
            f"config: the configuration's own split, but with {' and '.join(changed)} as the rows "
            "above have it; a plan without says what it makes as it is"
        )
    return ""


def _by_batch(profile: Profile, split: Split) -> str:
    """TR_L for every size of batch that was measured; empty if that was one."""
    known = [cost for cost in profile.learners if cost.cores == split.learner_cores]
    if len(known) < 2:
        return ""
    rates: list[str] = []
    for cost in known:
        drawing = 0.0 if split.buffer_alone else cost.draw_seconds
        seconds = max(cost.update_seconds + drawing, cost.draw_seconds) / cost.contention
        larger = f" (--batch-scale {cost.batch // split.batch})" if cost.batch > split.batch else ""
        unit = "" if rates else " samples/s"
        rates.append(
            f"{per_second(cost.batch / seconds)}{unit} in batches of {cost.batch:,}{larger}"
        )
    return f"one learner alone learns from {', '.join(rates)}"


def roles_in(split: Split) -> str:
    """As in `L1A1: 1 learner with 1 core and 1 actor with 8 environments`."""
    parts = [
        f"{count_of(split.learners, 'learner')} with {count_of(split.learner_cores, 'core')}"
        + (" each" if split.learners > 1 else ""),
        f"{count_of(split.actors, 'actor')} with {count_of(split.envs, 'environment')}"
        + (" each" if split.actors > 1 else ""),
    ]
    group = " and ".join(parts)
    if split.one_core:
        group += ", all on one core"
    return f"{split.name}: " + (
        f"{split.groups} groups, each of {group}" if split.groups > 1 else group
    )


def _balance(found: Prediction, choices: list[Choice]) -> str:
    could = (
        f"the actors could make {per_second(found.could_produce)} steps/s, the learners could take "
        f"{per_second(found.could_take)}"
    )
    if found.bound is Bound.TURNS:
        return f"{could}; they take turns"
    if found.imbalance <= EQUAL:
        return f"{could}: {found.bound}"
    apart = f"{could}: {found.bound}, {100 * found.imbalance:.0f} % apart"
    if len(choices) == 1:
        return apart
    least = min(choice.prediction.imbalance for choice in choices)
    if least + AS_NEAR >= found.imbalance:
        return f"{apart}; no next-best split is nearer to equal"
    as_near = [choice for choice in choices if choice.prediction.imbalance <= least + AS_NEAR]
    nearer = max(as_near, key=lambda choice: choice.prediction.production)
    speed = _faster(nearer.prediction.production / found.production - 1)
    named, cores = _name(nearer.split), nearer.split.learner_cores
    if cores != choices[0].split.learner_cores:
        named += f" with {count_of(cores, 'core')} for each learner"
    return f"{apart}; {named} would be nearer to equal, and {speed}"


def _faster(share: float) -> str:
    """The chosen split is the simplest of the fastest, so another may be somewhat faster."""
    percent = round(100 * abs(share))
    if percent == 0:
        return "as fast"
    slower = f"{percent} % slower"
    return slower if share < 0 else f"{percent} % faster, too little to prefer it"


def _updates(found: Prediction) -> str:
    return f"about {found.staleness:,.0f} updates once the pool is full"


def _rows(choices: list[Choice], configured: Choice | None, width: int | None) -> list[str]:
    rows = [HEAD, _row("plan", choices[0])]
    rows += [_row("", choice) for choice in choices[1:]]
    if configured is not None:
        rows.append(_row("config", configured))
    return fitted(rows, width, left=(0, 1, -1), least=LEAST)


def _row(mark: str, choice: Choice) -> tuple[str, ...]:
    split, found = choice.split, choice.prediction
    numbers = (split.groups, split.learner_cores, split.actors, split.envs)
    rates = (found.production, found.consumption, found.could_produce, found.could_take)
    return (
        mark,
        _name(split),
        *map(str, numbers),
        *map(per_second, rates),
        str(found.bound),
    )


def _name(split: Split) -> str:
    return split.name + "+B" * split.buffer_alone
