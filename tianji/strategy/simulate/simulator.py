"""From a profile and a layout to what would come of it.

Groups owe each other nothing: the reducer is not waited for. So one group is simulated, and the
others are as it is; that is what makes ten thousand cores a matter of seconds.
"""

from __future__ import annotations

import math

from tianji.core.errors import TianJiError
from tianji.core.wording import count_of
from tianji.strategy.plan.model import EQUAL
from tianji.strategy.plan.profile import Profile
from tianji.strategy.plan.split import Bound, Taking
from tianji.strategy.simulate.bounds import expected_busy, warmup_rate
from tianji.strategy.simulate.core_layout import Costs, Layout, costs_of, envs_of, share_beside
from tianji.strategy.simulate.prediction import Idle, Simulated, staleness_of
from tianji.strategy.simulate.simulated_group import Group

PER_ACTOR = 12  # trajectories of each actor that are simulated, a third of which is not counted
SIMULATED_TRAJECTORIES = 400  # at least, of all of them
SIMULATED_UPDATES = 60  # at least
MOST_EVENTS = 600_000
ROUNDS = 3  # until the learner's speed and the actors' waits agree
WAITS = 0.01  # of its time that a learner idles where it waits for somebody
SETTLED = 0.005  # of the learner's costs: a change that does not matter
REDUCED_BYTES_PER_SECOND = 2e9  # parameters that a reducer adds up: a guess, and shown as such


Reading = dict[str, float]
"""The counters of a group at one moment, or by how much they change in a second."""


def simulate(profile: Profile, layout: Layout, seed: int = 0, spread: float = 0.0) -> Simulated:
    """Predicts a run; `spread` is the standard deviation of costs, as a share of them."""
    group, rates, lags = _settled(profile, layout, seed, spread)
    costs, groups = group.costs, layout.groups
    most = 0.0 if costs.takes_once else costs.pool * costs.ratio / costs.batch
    wanted, fusions, reducer, fusion_link = _fusing(profile, layout, rates["updates"])
    return Simulated(
        layout=layout,
        cores=groups * layout.group_cores(profile.work),
        envs=envs_of(profile, layout),
        production=groups * rates["produced"],
        receiving=groups * rates["received"],
        consumption=groups * rates["consumed"],
        updates=groups * rates["updates"],
        idle=_idle(rates, costs.actors),
        link=rates["up"],
        weights_link=max(rates["down"], fusion_link),
        staleness=staleness_of(lags, most),
        knee=costs_of(profile, layout).knee,
        limit=_limit(costs, rates),
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
) -> tuple[Group, Reading, list[int]]:
    """The group whose learner is as fast as it is beside actors that wait as often as they do."""
    measured, busy = costs_of(profile, layout), expected_busy(profile, layout)
    for _ in range(ROUNDS):
        share = share_beside(profile, layout, busy)
        group = Group(measured.times(share), seed, spread)
        rates, lags = _run(group)
        found = 1.0 - _idle(rates, layout.actors).actors
        if abs(share_beside(profile, layout, found) / share - 1.0) < SETTLED:
            break
        busy = (busy + found) / 2  # halfway, so that it does not swing
    return group, rates, lags


def _run(group: Group) -> tuple[Reading, list[int]]:
    """Simulates until enough has happened: what was done per second, and the lags.

    Readings are taken at the end of updates.
    """
    costs, agenda = group.costs, group.agenda
    n_wanted = max(PER_ACTOR * costs.actors, SIMULATED_TRAJECTORIES)
    n_units = n_wanted * costs.units
    first, n_lags, version = Reading(), 0, group.version
    while agenda.n_events < MOST_EVENTS and agenda.step():
        if group.version == version:
            continue
        version = group.version
        if not first and 3 * group.received >= n_units and 3 * version >= SIMULATED_UPDATES:
            first, n_lags = _read(group), len(group.lags)
        if group.received >= n_units and version >= SIMULATED_UPDATES:
            break
    last = _read(group)
    if not first or last["updates"] - first["updates"] < SIMULATED_UPDATES // 4:
        raise TianJiError(
            f"{count_of(costs.actors, 'actor')} with {count_of(costs.units, 'unit')} at once and "
            f"batches of {costs.batch:,}: in {agenda.n_events:,} events there were only "
            f"{count_of(group.version, 'update')} and {group.received // costs.units:,} "
            f"trajectories, too few to say anything ({SIMULATED_UPDATES} and {n_wanted:,} are "
            "wanted): simulate a smaller batch, or fewer actors in each of more groups"
        )
    seconds = last["at"] - first["at"]
    return {name: (last[name] - first[name]) / seconds for name in last}, group.lags[n_lags:]


def _read(group: Group) -> Reading:
    return {
        "at": group.agenda.now,
        "produced": group.produced,
        "received": group.received,
        "consumed": group.consumed,
        "updates": group.version,
        "for_weights": group.for_weights.area,
        "for_room": group.for_room.area,
        "learner_idle": group.learner_idle,
        "buffer_idle": group.buffer_idle,
        "updating": group.updating.area,
        "drawing": group.drawing.area,
        "receiving": group.receiving.area,
        "up": group.up.busy_seconds,
        "down": group.down.busy_seconds,
    }


def _idle(rates: Reading, actors: int) -> Idle:
    weights, room = rates["for_weights"] / actors, rates["for_room"] / actors
    learner = rates["learner_idle"]
    return Idle(
        actors=weights + room,
        buffer=rates["buffer_idle"],
        learner=learner,
        weights=weights,
        action=0.0,
        trajectories=learner,
        room=room,
    )


def _limit(costs: Costs, rates: Reading) -> Bound:
    """What is busiest; a link is communication, if a learner waits for what it carries.

    A link that is always in use holds up nobody where the learner has enough to do. Actors that are
    as busy as the others are in balance with them, as in `plan.model`.
    """
    if costs.alternates:
        return Bound.TURNS
    idle, link = _idle(rates, costs.actors), rates["up"]
    acting, taking = 1.0 - idle.actors, 1.0 - min(idle.learner, idle.buffer)
    spent = rates["updating"], rates["drawing"], rates["receiving"]
    bound = Taking(*spent, costs.is_alone).bound
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
