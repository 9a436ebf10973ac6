"""A plan in plain words and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tianji.core.columns import fitted, labelled
from tianji.core.wording import count_of, duration, per_second
from tianji.strategy.plan.costs import acted_for_seconds, actor_cost_at
from tianji.strategy.plan.model import EQUAL, trajectory_costs
from tianji.strategy.plan.profile import Profile
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
    about = [*_about(profile, choices, cores), *cautions(profile, choices[0].split, is_fused)]
    if configured is None:
        about.append(("config", "its own split needs more cores than these: it has no row"))
    elif changed:
        about.append(("config", f"its own split has a row, with {' and '.join(changed)} too"))
    marks = ["plan", *[""] * (len(choices) - 1)]
    rows = [HEAD, *map(_row, marks, choices)]
    rows += [_row("config", configured)] if configured is not None else []
    lines = [labelled(name, words, width, LABEL_WIDTH) for name, words in about]
    return "\n".join([*lines, "", *fitted(rows, width, left=(0, 1, -1), least=LEAST)])


def _about(profile: Profile, choices: list[Choice], cores: int | None) -> Iterator[tuple[str, str]]:
    work, split, found = profile.work, choices[0].split, choices[0].prediction
    measured, used = profile.machine.cores, split.cores_per_host(work)
    each = " of each host" if split.hosts > 1 else ""
    idle = f"; {cores - used:,} of {count_of(cores, 'core')}{each} idle" if cores else ""
    yield "plan", roles_in(split) + idle * (cores is not None and used < cores)
    yield "buffer", "on a core of its own" if split.buffer_alone else "rides with the learner"
    if work.inference:
        yield "inference", _acting_for_all(profile, split)
    yield (
        "batch",
        f"{split.batch:,} samples from a pool of {split.pool:,}: freshness P = "
        f"{found.freshness:.3g}, as in serial training",
    )
    if rates := _by_batch(profile, split):
        yield "learner", f"one alone learns from {rates}"
    beyond = f"; extrapolated: {count_of(measured, 'core')} were measured" * (used > measured)
    yield (
        "predicted",
        f"produced {per_second(found.production)} steps/s, consumed "
        f"{per_second(found.consumption)} samples/s (replay ratio {work.ratio:g}){beyond}",
    )
    yield "balance", _balance(choices)
    updates = f"about {found.staleness:,.0f} updates once the pool is full"
    yield "staleness", "none: acting and learning take turns" if work.alternates else updates
    on_each = found.memory_bytes / split.groups * split.groups_per_host / 2**20
    per_host = f" in all, {on_each:,.0f} MiB on each host" * (split.hosts > 1)
    yield "memory", f"{found.memory_bytes / 2**20:,.0f} MiB{per_host}"
    costs = trajectory_costs(profile, split)
    making, sending, receiving = map(duration, (costs.making, costs.sending, costs.receiving))
    yield (
        "equation 1",
        f"T_sp {making}, T_sd {sending}, T_rv {receiving} per trajectory: beyond "
        f"{found.knee:,.0f} actors receiving alone would be the limit",
    )


def cautions(profile: Profile, split: Split, is_fused: bool = True) -> Iterator[tuple[str, str]]:
    """What may make another split the better one, whatever is predicted."""
    work, computing = profile.work, actor_cost_at(profile, split.envs).computing
    if profile.was_disturbed:
        yield (
            "others",
            f"kept {profile.foreign_cores:.1f} of {count_of(profile.machine.cores, 'core')} busy "
            "while this was measured: measure again when they have gone",
        )
    if computing < WAITING and not split.one_core:
        yield (
            "actors",
            f"need a core for {100 * computing:.0f} % of their time, and wait in the rest: more of "
            "them than cores may be faster: compare with tianji train --set actor_cfg.num=N, "
            "without a plan",
        )
    if not work.on_policy and split.actors * split.envs > work.envs:
        own = max(1, work.envs // split.actors)
        yield (
            "envs",
            f"more than the configuration has ({work.envs} in a group), so a result takes more "
            f"steps: compare with --set actor_cfg.envs={own}",
        )
    if split.groups > 1:
        averaged = "averaged by a reducer" if is_fused else "not averaged (use_group_parallel)"
        fewer = f": compare with --set global_cfg.group_num={split.hosts}"  # each host has one
        yield (
            "groups",
            f"their parameters are {averaged}; each learns from its own samples, so a result takes "
            f"more steps than with one{fewer * (split.groups > split.hosts)}",
        )


def _acting_for_all(profile: Profile, split: Split) -> str:
    """What the role that acts for a group's actors can do."""
    seconds = acted_for_seconds(profile, split.actors, split.envs)
    rate = f", {per_second(split.actors * split.envs / seconds)} steps/s" if seconds else ""
    where = f", on {profile.machine.acting_gpu}" if profile.machine.acting_gpu else ""
    return (
        f"acts for the actors of its group on a core of its own{where}: once for all of them in "
        f"{duration(seconds)}{rate}; it and an actor wake each other in "
        f"{duration(profile.waking_seconds)}"
    )


def _by_batch(profile: Profile, split: Split) -> str:
    """TR_L for every size of batch that was measured; empty if that was one."""
    known = [cost for cost in profile.learners if cost.cores == split.learner_cores]
    rates = []
    for cost in known if len(known) > 1 else ():
        drawing = 0.0 if split.buffer_alone else cost.draw_seconds
        seconds = max(cost.update_seconds + drawing, cost.draw_seconds) / cost.contention
        larger = f" (--batch-scale {cost.batch // split.batch})" if cost.batch > split.batch else ""
        made = per_second(cost.batch / seconds)
        rates.append(f"{made} samples/s in batches of {cost.batch:,}{larger}")
    return ", ".join(rates)


def roles_in(split: Split) -> str:
    """As in `L1A1: 1 learner with 1 core and 1 actor with 8 environments`."""
    learners, actors = count_of(split.learners, "learner"), count_of(split.actors, "actor")
    each = [" each" if n > 1 else "" for n in (split.learners, split.actors)]
    group = (
        f"{learners} with {count_of(split.learner_cores, 'core')}{each[0]} and "
        f"{actors} with {count_of(split.envs, 'environment')}{each[1]}"
        f"{', all on one core' * split.one_core}"
    )
    return f"{split.name}: {f'{split.groups} groups, each of ' * (split.groups > 1)}{group}"


def _balance(choices: list[Choice]) -> str:
    found = choices[0].prediction
    could = (
        f"the actors could make {per_second(found.could_produce)} steps/s, the learners could take "
        f"{per_second(found.could_take)}"
    )
    if found.bound is Bound.TURNS:
        return f"{could}; they take turns"
    if found.imbalance <= EQUAL:
        return f"{could}: {found.bound}"
    apart = f"{could}: {found.bound}, {100 * found.imbalance:.0f} % apart"
    least = min(choice.prediction.imbalance for choice in choices)
    if least + AS_NEAR >= found.imbalance:
        return apart
    as_near = [choice for choice in choices if choice.prediction.imbalance <= least + AS_NEAR]
    nearer = max(as_near, key=lambda choice: choice.prediction.production)
    gain = _gain(nearer.prediction, found)
    return f"{apart}; {_name(nearer.split)} would be nearer to equal, {gain:+.0f} % steps/s"


def _gain(other: Prediction, found: Prediction) -> float:
    """Percent; the chosen split is the simplest of the fastest, so another may be faster."""
    return 100 * (other.production / found.production - 1)


def _row(mark: str, choice: Choice) -> tuple[str, ...]:
    split, found = choice.split, choice.prediction
    numbers = (split.groups, split.learner_cores, split.actors, split.envs)
    rates = (found.production, found.consumption, found.could_produce, found.could_take)
    limit = str(found.bound)
    return mark, _name(split), *map(str, numbers), *map(per_second, rates), limit


def _name(split: Split) -> str:
    return split.name + "+B" * split.buffer_alone
