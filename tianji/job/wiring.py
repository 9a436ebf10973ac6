"""Every channel of a run: who sends what to whom, in which layout, how many of it at once."""

from __future__ import annotations

from collections.abc import Mapping

from tianji.core.channel import ChannelSpec, Delivery
from tianji.core.counts import actor_report_schema, learner_report_schema, report_schema
from tianji.core.frames import STACKED
from tianji.core.store import Placed, feedback_schema, step_fields
from tianji.job.advice import advice_schema
from tianji.job.job import Job
from tianji.roles.allreduce import exchange_schema
from tianji.roles.env_actor import actions_schema, steps_schema
from tianji.roles.episodes import EPISODE_SCHEMA
from tianji.roles.evaluator import ORDER_SCHEMA as EVALUATION_ORDER
from tianji.roles.evaluator import evaluation_schema
from tianji.roles.fusion import parameters_schema
from tianji.roles.role_specs import (
    LAUNCHER,
    MEAN,
    Kind,
    actions_of,
    batches_of,
    evaluator_of,
    gradients_of,
    parameters_of,
    priorities_of,
    role_name,
    roles_of,
    steps_of,
    weights_of,
)
from tianji.roles.saving import ORDER_SCHEMA
from tianji.roles.shards import shard_schema
from tianji.transports import ring


def channels_of(job: Job) -> list[ChannelSpec]:
    """Every channel of the run."""
    roles, latest = roles_of(job.config), Delivery.LATEST
    learners = tuple(role.name for role in roles if role.kind is Kind.LEARNER)
    specs = [spec for group in range(job.config.n_groups) for spec in _group_channels(job, group)]
    everybody = tuple(role.name for role in roles)
    specs.append(ChannelSpec("orders", LAUNCHER, everybody, ORDER_SCHEMA, latest))
    specs.append(ChannelSpec("control", LAUNCHER, learners, ORDER_SCHEMA, latest))
    specs.append(ChannelSpec("advice", LAUNCHER, everybody, advice_schema(len(roles)), latest))
    for role in roles:
        layout = report_schema()
        if role.kind is Kind.LEARNER:
            layout = learner_report_schema(job.algorithm.scalars)
        elif role.kind is Kind.ACTOR:
            layout = actor_report_schema()
        specs.append(ChannelSpec(f"report {role.name}", role.name, (LAUNCHER,), layout, latest))
    return specs + _fusion_channels(job) + _evaluation_channels(job)


def _group_channels(job: Job, group: int) -> list[ChannelSpec]:
    """What the roles of one group exchange, and their episodes."""
    n = job.config.n_learners
    learners = [role_name(Kind.LEARNER, i, group) for i in range(n)]
    actors = [role_name(Kind.ACTOR, i, group) for i in range(job.task.n_actors)]
    buffer, weights = role_name(Kind.BUFFER, 0, group), job.weights
    batch = shard_schema(job.sampling.batch_schema(job.trajectory), n)
    ahead, gradient = job.batches_ahead, exchange_schema(job.n_parameters)
    inference = _inference(job, group)
    latest, readers = Delivery.LATEST, _readers(job, group)
    targets = tuple(actors) if inference is None else (inference,)
    if job.sampling.per_version is None:  # it looks before every step, and waits only for the first
        targets, readers = (), (*targets, *readers)
    specs = [ChannelSpec(weights_of(group), learners[0], targets, weights, latest, readers=readers)]
    for i, learner in enumerate(learners):
        specs.append(ChannelSpec(batches_of(group, i), buffer, (learner,), batch, depth=ahead))
        if job.sampling.reweighs:
            back, layout = priorities_of(group, i), feedback_schema(job.sampling.batch // n)
            specs.append(ChannelSpec(back, learner, (buffer,), layout, depth=ahead + 1))
        specs += [
            ChannelSpec(gradients_of(group, i, j), learner, (other,), gradient)
            for j, other in enumerate(learners)
            if j != i
        ]
    for actor in actors:
        source, layout, depth = inference or actor, job.trajectory, job.depth
        specs.append(ChannelSpec(f"trajectories {actor}", source, (buffer,), layout, depth=depth))
        specs.append(ChannelSpec(f"episodes {actor}", actor, (LAUNCHER,), EPISODE_SCHEMA, depth=64))
        if inference is not None:
            specs += _inference_channels(job, actor, inference)
    return specs


def _inference(job: Job, group: int) -> str | None:
    """Who acts for the actors of a group, if they do not themselves."""
    wanted = job.config.parallel.actor_cfg.inference
    return role_name(Kind.INFERENCE, 0, group) if wanted else None


def _inference_channels(job: Job, actor: str, inference: str) -> list[ChannelSpec]:
    """Between an actor and who acts for it.

    What is for an actor that was lost, or comes of one, may be in flight beside what is for the
    next; and another that acts says once that it does.
    """
    env, n = job.task.env, job.n_halves
    seen, action = steps_schema(env, n), actions_schema(env, n)
    return [
        ChannelSpec(steps_of(actor), actor, (inference,), seen, depth=2 * n),
        ChannelSpec(actions_of(actor), inference, (actor,), action, depth=2 * n + 1),
    ]


def _readers(job: Job, group: int) -> tuple[str, ...]:
    """Who else looks at a group's weights; a learner that rang for them would wake them in vain."""
    evaluator = evaluator_of(job.config)
    return (LAUNCHER,) if evaluator is None or group else (LAUNCHER, evaluator.name)


def _fusion_channels(job: Job) -> list[ChannelSpec]:
    """Between the first learner of each group and the reducer."""
    if not job.config.fuses:
        return []
    reducer, layout = role_name(Kind.REDUCER), parameters_schema(job.n_parameters)
    firsts = tuple(role_name(Kind.LEARNER, 0, group) for group in range(job.config.n_groups))
    specs = [ChannelSpec(MEAN, reducer, firsts, layout, Delivery.LATEST)]
    for group, first in enumerate(firsts):
        specs.append(ChannelSpec(parameters_of(group), first, (reducer,), layout, depth=1))
    return specs


def _evaluation_channels(job: Job) -> list[ChannelSpec]:
    """What an evaluator has beside the weights, which it reads without being a target of theirs.

    A learner that rang its bell at every update would wake it for nothing.
    """
    evaluator = evaluator_of(job.config)
    if evaluator is None:
        return []
    name, latest = evaluator.name, Delivery.LATEST
    result = evaluation_schema(job.config.exp.eval_times, job.algorithm.n_weights(job.task))
    return [
        ChannelSpec("evaluate", LAUNCHER, (name,), EVALUATION_ORDER, latest),
        ChannelSpec("evaluations", name, (LAUNCHER,), result),
        ChannelSpec(f"report {name}", name, (LAUNCHER,), report_schema(), latest),
    ]


def is_private(spec: ChannelSpec, homes: Mapping[str, str], home: str) -> bool:
    """Whether all ends of a channel are in the process called `home`."""
    return {homes[role] for role in (spec.source, *spec.targets, *spec.readers)} == {home}


def n_bytes_of(job: Job) -> dict[str, int]:
    """Memory that the run will take beside code and libraries."""
    rings = sum(ring.n_bytes(spec) for spec in channels_of(job))
    store = job.sampling.n_bytes(job.trajectory, job.task.n_actors, job.slack)
    return {"channels": rings, "store": store * job.config.n_groups}


def n_device_bytes_of(job: Job) -> tuple[int, int]:
    """Memory of the GPU that the stores will take, and how much of it however few samples."""
    if not isinstance(job.sampling, Placed):
        return 0, 0
    each = job.sampling.n_device_bytes(job.trajectory, job.task.n_actors)
    if not each:
        return 0, 0
    samples = (job.sampling.room or 0) * step_fields(job.trajectory)[STACKED].n_bytes
    return each * job.config.n_groups, (each - samples) * job.config.n_groups
