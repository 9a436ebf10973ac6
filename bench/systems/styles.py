"""The paper's Figure 1: how five kinds of systems would spend the time of the same cores.

All have the same costs, the same number of cores and the same ratio of consumption to production;
they differ in who does what and who waits for whom.

    Gorila  actors act and simulate; the learner waits for all of them (III), they for it (I)
    SEED    the learner infers for all; actors only simulate, and wait for each action (II)
    A3C     workers of an actor and a learner each, which wait for each other as above; the
            workers share parameters and nothing else
    ApeX    as ours, but every batch must have its new priorities back in the buffer before the
            next is drawn
    ours    actors, buffer and learner as in `roles.py`, asynchronous
"""

from __future__ import annotations

import dataclasses
import heapq

import numpy as np

from systems.recorded import Prioritised, PrioritisedCosts, Recorded
from systems.schedule import Case, InStep, Schedule
from systems.timeline import FINEST, Doing
from tianji.strategy.plan.costs import actor_cost_at, message_seconds
from tianji.strategy.plan.profile import Profile
from tianji.strategy.simulate.core_layout import Costs, Layout, costs_of, envs_of
from tianji.strategy.simulate.spread import Spread
from tianji.strategy.simulate.sweep import Finder

INFER_SHARE = 0.5  # of a step, where the profile does not tell inference from simulation
PRIORITY_SHARE = 1.0  # of a draw: noting the priorities of a batch touches as many rows
SPREAD = 0.05  # of costs: nobody is as fast as the others every time


STYLES = ("gorila", "seed", "a3c", "apex", "ours")


def schedules(
    profile: Profile,
    layout: Layout,
    styles: tuple[str, ...] = STYLES,
    seed: int = 0,
    spread: float = SPREAD,
    ours: Layout | None = None,
) -> list[Schedule]:
    """The asked-for styles on the cores of one group of the layout.

    `ours` are our groups on one host, one of the layout's unless given. Where their buffer has a
    core of its own, the others have an actor more.
    """
    makers = {"gorila": _gorila, "seed": _seed, "a3c": _a3c, "apex": _apex, "ours": _ours}
    one = dataclasses.replace(layout, groups=1, hosts=1)
    theirs = dataclasses.replace(one, actors=one.actors + one.buffer_alone, buffer_alone=False)
    layouts = dict.fromkeys(STYLES, theirs) | {"ours": ours or one}
    if profile.work.alternates:
        makers["ours"], layouts = _ours_in_turns, dict.fromkeys(STYLES, one)
    return [makers[style](_case(profile, layouts[style], seed, spread)) for style in styles]


def as_planned(profile: Profile, layout: Layout, learner_cores: int | None = None) -> Layout:
    """What a plan makes of the cores of one group, with the same environments of each actor.

    The layout itself where a batch depends on the number of actors, or a pool has no room for one.
    """
    work, envs = profile.work, envs_of(profile, layout)
    if work.on_policy or work.alternates or work.steps * envs > work.pool:
        return layout
    cores = layout.group_cores(work)
    same = dataclasses.replace(layout, envs=envs, groups=1, hosts=1)
    return Finder(profile, same, learner_cores).layout(cores, cores)


def _case(profile: Profile, layout: Layout, seed: int, spread: float) -> Case:
    costs = dataclasses.replace(costs_of(profile, layout), alternates=False)
    envs = envs_of(profile, layout)

    def infer(n_envs: int) -> float:
        cost = actor_cost_at(profile, n_envs)
        return INFER_SHARE * cost.step_seconds if cost.act_seconds is None else cost.act_seconds

    return Case(
        costs=costs,
        learners=layout.learners,
        learner_cores=layout.learner_cores,
        groups=layout.groups,
        step=costs.rollout_seconds / costs.steps,
        inference=infer(envs),
        infer_all=lambda actors: infer(actors * envs),
        spread=Spread(spread, np.random.default_rng(seed)),
    )


# ----------------------------------------------------------------------------------- styles in step


def _gorila(case: Case) -> Schedule:
    return _in_turns(case, "Gorila")


def _ours_in_turns(case: Case) -> Schedule:
    """Synchronous training is that schedule by its nature, whoever does it."""
    return _in_turns(case, "ours")


def _in_turns(case: Case, style: str) -> Schedule:
    group = _one_group(case)
    for _ in range(case.cycles):
        ready = group.roll_out()
        group.wait(ready, group.update(group.receive(ready)))
    return group.counted(style)


def _one_group(case: Case) -> InStep:
    return InStep(case, case.record(), [f"A{i}" for i in range(case.costs.actors)], "L")


def _seed(case: Case) -> Schedule:
    """Observations and actions cross to the learner and back, a message of `T_sd` each."""
    n, costs = case.costs.actors, case.costs
    group = _one_group(case)
    blocks = min(costs.steps, FINEST)
    each = costs.steps / blocks  # steps that one block stands for
    for _ in range(case.cycles):
        at = group.now
        for row in group.actors:
            group.line.begin(row, at)
        for _ in range(blocks):
            at = _seed_step(group, at, each)
        ready = [at] * n
        stored = at
        for _ in range(n):
            stored = group.stored(stored)
        group.wait(ready, group.update(stored))
    return group.counted("SEED")


def _seed_step(group: InStep, at: float, times: float) -> float:
    """The learner infers for all; then all simulate; it waits for the slowest."""
    case, line = group.case, group.line
    inferred = at + times * case.infer_all(len(group.actors))
    line.add(group.learner, Doing.INFER, at, inferred)
    hop = times * case.costs.send_seconds
    line.add(group.learner, Doing.SEND, inferred, inferred + hop)
    came = inferred + hop
    ready = []
    for row in group.actors:
        simulated = came + times * case.spread.of(case.simulate)
        line.add(row, Doing.ACTION, at, came)
        line.add(row, Doing.SIMULATE, came, simulated)
        line.add(row, Doing.SEND, simulated, simulated + hop)
        ready.append(simulated + hop)
    end = max(ready)
    for row, since in zip(group.actors, ready, strict=True):
        line.add(row, Doing.ACTION, since, end)
    line.add(group.learner, Doing.ACTION, came, end)
    return end


def _a3c(case: Case) -> Schedule:
    """Each worker pushes what it learned to parameters that one of them at a time may change.

    A worker's learner is as large as that of the others, so there are as many as the cores allow.
    They make as many trajectories as the actors of the others, and are not in step: each begins
    with another part of an update.
    """
    n = max(1, (case.costs.actors + case.learning_cores) // (1 + case.learning_cores))
    record = case.record()
    workers = [InStep(case, record, [f"W{i}A"], f"W{i}L", owed=i / n) for i in range(n)]
    pushing = message_seconds(case.costs.weights_bytes)
    turns = [(0.0, i) for i in range(n)]
    free_at = 0.0
    for _ in range(case.cycles * case.costs.actors):
        _, i = heapq.heappop(turns)
        worker = workers[i]
        ready = worker.roll_out()
        learned = worker.update(worker.receive(ready))
        begun = max(learned, free_at)
        free_at = begun + pushing
        worker.line.add(worker.learner, Doing.WEIGHTS, learned, begun)
        worker.line.add(worker.learner, Doing.SEND, begun, free_at)
        worker.wait(ready, free_at)
        heapq.heappush(turns, (worker.now, i))
    return case.settled("A3C", record, turns[0][0])  # until then everybody is recorded


# ------------------------------------------------------------------------------- styles out of step


def _apex(case: Case) -> Schedule:
    """The buffer has a core of its own; the share of its priorities is `PRIORITY_SHARE`.

    Training that learns from each sample once draws without priorities, as IMPALA does.
    """
    costs = dataclasses.replace(case.costs, actors=max(1, case.costs.actors - 1), is_alone=True)
    if not costs.takes_once:
        each = PRIORITY_SHARE * costs.draw_seconds
        costs = PrioritisedCosts(**vars(costs), priority_seconds=each)
        receiving = costs.receive_seconds + each * costs.units / costs.batch
        costs = dataclasses.replace(costs, receive_seconds=receiving)
    return _asynchronous(case, "ApeX", costs)


def _ours(case: Case) -> Schedule:
    return _asynchronous(case, "ours", case.costs)


def _asynchronous(case: Case, style: str, costs: Costs) -> Schedule:
    record, end = case.record(), case.cycles * case.cycle_seconds
    seed = int(case.spread.random.integers(2**31))
    kind = Prioritised if isinstance(costs, PrioritisedCosts) else Recorded
    group = kind(costs, seed, case.spread.share, record.timeline)
    produced = consumed = 0
    while group.agenda.now < end and group.agenda.step():
        now = group.agenda.now
        if group.received > produced:
            record.made.append((now, group.received - produced))
            produced = group.received
        if group.consumed > consumed:
            record.learned.append((now, group.consumed - consumed))
            consumed = group.consumed
    group.close()
    return case.settled(style, record, end)
