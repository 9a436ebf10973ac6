"""From a profile and a layout to what would come of it.

Groups owe each other nothing: the reducer is not waited for. So one group is simulated, and the
others are as it is; that is what makes ten thousand cores a matter of seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tianji.core.errors import TianJiError
from tianji.core.wording import count_of
from tianji.strategy.plan.model import EQUAL
from tianji.strategy.plan.profile import Profile
from tianji.strategy.plan.split import Bound, Taking
from tianji.strategy.simulate.bounds import expected_busy, warmup_rate
from tianji.strategy.simulate.group import Group
from tianji.strategy.simulate.layout import Costs, Layout, costs_of, envs_of, share_beside
from tianji.strategy.simulate.result import Idle, Simulated, staleness_of

PER_ACTOR = 12  # trajectories of each actor that are simulated, a third of which is not counted
SIMULATED_TRAJECTORIES = 400  # at least, of all of them
SIMULATED_UPDATES = 60  # at least
MOST_EVENTS = 600_000
ROUNDS = 3  # until the learner's speed and the actors' waits agree
WAITS = 0.01  # of its time that a learner idles where it waits for somebody
SETTLED = 0.005  # of the learner's costs: a change that does not matter
REDUCED_BYTES_PER_SECOND = 2e9  # parameters that a reducer adds up: a guess, and shown as such


@dataclass(frozen=True)
class _Reading:
    """The counters of a group at one moment."""

    at: float
    produced: int
    received: int
    consumed: int
    updates: int
    for_weights: float
    for_room: float
    learner_idle: float
    buffer_idle: float
    updating: float
    drawing: float
    receiving: float
    up: float
    down: float
    n_lags: int


def simulate(profile: Profile, layout: Layout, seed: int = 0, spread: float = 0.0) -> Simulated:
    """Predicts a run; `spread` is the standard deviation of costs, as a share of them."""
    group, before, after = _settled(profile, layout, seed, spread)
    costs = group.costs
    seconds = after.at - before.at
    production, receiving, consumption, updates = (
        (b - a) / seconds
        for a, b in (
            (before.produced, after.produced),
            (before.received, after.received),
            (before.consumed, after.consumed),
            (before.updates, after.updates),
        )
    )
    idle = _idle(before, after, costs.actors)
    link = (after.up - before.up) / seconds
    most = 0.0 if costs.takes_once else costs.pool * costs.ratio / costs.batch
    wanted, fusions, reducer, fusion_link = _fusing(profile, layout, updates)
    return Simulated(
        layout=layout,
        cores=layout.groups * layout.group_cores(profile.work),
        envs=envs_of(profile, layout),
        production=layout.groups * production,
        receiving=layout.groups * receiving,
        consumption=layout.groups * consumption,
        updates=layout.groups * updates,
        idle=idle,
        link=link,
        weights_link=max((after.down - before.down) / seconds, fusion_link),
        staleness=staleness_of(group.lags[before.n_lags : after.n_lags], most),
        knee=costs_of(profile, layout).knee,
        limit=_limit(costs, before, after, link),
        warmup_seconds=_until_first_update(profile, costs),
        fusions=fusions,
        fusions_wanted=wanted,
        reducer=reducer,
        reducer_link=fusion_link,
        seconds=group.agenda.now,
        n_events=group.agenda.n_events,
    )


def _until_first_update(profile: Profile, costs: Costs) -> float:
    """Until enough has come to learn from, and a trajectory at least, which comes as a whole."""
    needed = max(profile.work.warmup, costs.batch if costs.takes_once else 0)
    first = costs.rollout_seconds + costs.send_seconds + costs.receive_seconds
    return max(first, needed / warmup_rate(costs))


def _settled(
    profile: Profile, layout: Layout, seed: int, spread: float
) -> tuple[Group, _Reading, _Reading]:
    """The group whose learner is as fast as it is beside actors that wait as often as they do."""
    measured, busy = costs_of(profile, layout), expected_busy(profile, layout)
    for _ in range(ROUNDS):
        share = share_beside(profile, layout, busy)
        group = Group(measured.times(share), seed, spread)
        before, after = _run(group)
        found = 1.0 - _idle(before, after, layout.actors).actors
        if abs(share_beside(profile, layout, found) / share - 1.0) < SETTLED:
            break
        busy = (busy + found) / 2  # halfway, so that it does not swing
    return group, before, after


def _run(group: Group) -> tuple[_Reading, _Reading]:
    """Simulates until enough has happened; the readings are taken at the end of updates."""
    costs, agenda = group.costs, group.agenda
    n_units = _wanted(costs) * costs.units
    first: _Reading | None = None
    version = group.version
    while agenda.n_events < MOST_EVENTS and agenda.step():
        if group.version == version:
            continue
        version = group.version
        if first is None and 3 * group.received >= n_units and 3 * version >= SIMULATED_UPDATES:
            first = _read(group)
        if group.received >= n_units and version >= SIMULATED_UPDATES:
            break
    last = _read(group)
    if first is None or last.updates - first.updates < SIMULATED_UPDATES // 4:
        raise TianJiError(_too_little(costs, last, agenda.n_events))
    return first, last


def _wanted(costs: Costs) -> int:
    """Trajectories that are simulated."""
    return max(PER_ACTOR * costs.actors, SIMULATED_TRAJECTORIES)


def _too_little(costs: Costs, last: _Reading, n_events: int) -> str:
    """What is lacking for a simulation to say anything, and how to have more of it."""
    came, wanted = last.received // costs.units, _wanted(costs)
    lacking, instead = (
        f"only {count_of(last.updates, 'update')}, too few to say anything: {SIMULATED_UPDATES} "
        f"are wanted, and each takes {costs.batch:,} units",
        "more environments per actor or a smaller batch",
    )
    if last.updates >= SIMULATED_UPDATES and came < wanted:
        lacking, instead = (
            f"enough updates, but only {came:,} trajectories, too few to say anything: {wanted:,} "
            f"are wanted, {PER_ACTOR} of each actor",
            "fewer actors in each of more groups",
        )
    return (
        f"{count_of(costs.actors, 'actor')} with {count_of(costs.units, 'unit')} at once: in "
        f"{n_events:,} events (no more than {MOST_EVENTS:,} are simulated) there were "
        f"{lacking}: {instead} can be simulated"
    )


def _read(group: Group) -> _Reading:
    return _Reading(
        at=group.agenda.now,
        produced=group.produced,
        received=group.received,
        consumed=group.consumed,
        updates=group.version,
        for_weights=group.for_weights.area,
        for_room=group.for_room.area,
        learner_idle=group.learner_idle,
        buffer_idle=group.buffer_idle,
        updating=group.updating.area,
        drawing=group.drawing.area,
        receiving=group.receiving.area,
        up=group.up.busy_seconds,
        down=group.down.busy_seconds,
        n_lags=len(group.lags),
    )


def _idle(before: _Reading, after: _Reading, actors: int) -> Idle:
    seconds = after.at - before.at
    weights = (after.for_weights - before.for_weights) / seconds / actors
    room = (after.for_room - before.for_room) / seconds / actors
    learner = (after.learner_idle - before.learner_idle) / seconds
    buffer = (after.buffer_idle - before.buffer_idle) / seconds
    return Idle(
        actors=weights + room,
        buffer=buffer,
        learner=learner,
        weights=weights,
        action=0.0,
        trajectories=learner,
        room=room,
    )


def _limit(costs: Costs, before: _Reading, after: _Reading, link: float) -> Bound:
    """What is busiest; a link is communication, if a learner waits for what it carries.

    A link that is always in use holds up nobody where the learner has enough to do. Actors that are
    as busy as the others are in balance with them, as in `planning.model`.
    """
    if costs.alternates:
        return Bound.TURNS
    seconds = after.at - before.at
    idle = _idle(before, after, costs.actors)
    updating, drawing, receiving = (
        (b - a) / seconds
        for a, b in (
            (before.updating, after.updating),
            (before.drawing, after.drawing),
            (before.receiving, after.receiving),
        )
    )
    acting, taking = 1.0 - idle.actors, 1.0 - min(idle.learner, idle.buffer)
    bound = Taking(updating, drawing, receiving, costs.is_alone).bound
    if link > taking and taking < 1.0 - WAITS:
        taking, bound = link, Bound.COMMUNICATION
    if min(acting, taking) >= (1.0 - EQUAL) * max(acting, taking):
        return Bound.NONE
    return Bound.SAMPLE if acting > taking else bound


def _fusing(profile: Profile, layout: Layout, updates: float) -> tuple[float, float, float, float]:
    """Fusions per second as configured, as can be, and how busy reducer and its host's link are."""
    if layout.groups == 1:
        return 0.0, 0.0, 0.0, 0.0
    wanted, each = updates / profile.work.fusion_interval, profile.work.weights_bytes
    reducing = layout.groups * each / REDUCED_BYTES_PER_SECOND
    speed = layout.link_bytes_per_second or profile.link_bytes_per_second or math.inf
    elsewhere = layout.groups - layout.groups_per_host
    sending = elsewhere * each / speed
    fusions = min([wanted, *(1.0 / s for s in (reducing, sending) if s > 0)])
    return wanted, fusions, fusions * reducing, fusions * sending
