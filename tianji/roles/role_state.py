"""What each role must remember to go on another day, and how it goes on.

Where everything is restored, what was in flight between the roles too, training goes on as if it
had never stopped. Otherwise what was in flight is lost, and `rejoin` makes the roles of a group
agree again on where they stand: on the version of its first learner.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import assert_never

import numpy as np

from tianji.core.algorithm import Policy
from tianji.core.counts import Count, counts_state, restore_counts
from tianji.core.schema import Arrays
from tianji.core.state import State, fresh_seed, restore_to, state_of
from tianji.roles import Actor, Buffer, Learner
from tianji.roles.env_actor import EnvActor
from tianji.roles.inference import Inference
from tianji.roles.reducer import Reducer
from tianji.roles.role import Role

AnyRole = Actor | EnvActor | Inference | Buffer | Learner | Reducer


def state(role: Role) -> State:
    """What a role must remember; arrays may be views that its next step changes."""
    known: AnyRole = _known(role)
    about = {"counts": counts_state(role.counts)}
    match known:
        case Actor():
            return about | _actor_state(known)
        case EnvActor():
            return about | _env_actor_state(known)
        case Inference():
            return about | known.state()
        case Buffer():
            return about | _buffer_state(known)
        case Learner():
            return about | _learner_state(known)
        case Reducer():
            return about | {"came": known.came, "gathered": known.gathered}
        case _:
            assert_never(known)


def restore(role: Role, state: State) -> None:
    """Goes on from a `state`; channels, where they are restored, must have been before."""
    known: AnyRole = _known(role)
    restore_counts(role.counts, state["counts"])
    if is_bare(state):
        return
    match known:
        case Actor():
            _restore_actor(known, state)
        case EnvActor():
            _restore_env_actor(known, state)
        case Inference():
            known.restore(state)
        case Buffer():
            _restore_buffer(known, state)
        case Learner():
            _restore_learner(known, state)
        case Reducer():
            known.came[...], known.gathered[...] = state["came"], state["gathered"]
        case _:
            assert_never(known)


def is_bare(state: State) -> bool:
    """Whether a role had died: then its counts are all that was known of it."""
    return state.keys() == {"counts"}


def follow(role: Role, state: State) -> None:
    """Makes a learner the same as the first of its group, of which this is the state."""
    assert isinstance(role, Learner)
    role.version, role.published = state["version"], state["published"]
    role.counts[Count.VERSION] = role.version
    role.algorithm.restore(state["algorithm"])


def take_over(actor: Actor) -> None:
    """Goes on in the place of an actor that was lost, whose counts this one has.

    Its episodes are new ones. A synchronous actor owes what the version that it finds has to come,
    unless the lost one has sent that.
    """
    produced, pushed = int(actor.counts[Count.PRODUCED]), int(actor.counts[Count.PUSHED])
    _explore_from(getattr(actor.policy, "halves", (actor.policy,)), produced)
    actor.log.begin_from(produced)
    actor.take_weights()
    per_version = actor.per_version or 0
    actor.trajectory.sent = max(pushed, actor.version * per_version)


def take_over_inference(inference: Inference, streams: Sequence[int], steps: Sequence[int]) -> None:
    """Goes on in the place of one that was lost: each actor has made so many `steps`."""
    for seat, made in zip(inference.seats, steps, strict=True):
        _explore_from(seat.policies, made)
    inference.take_over(streams)


def _explore_from(halves: Sequence[Policy], steps: int) -> None:
    """Sets the schedules of policies to where they are after so many steps of all of them."""
    for half in halves:
        known = state_of(half)
        if known is not None and "steps" in known:
            restore_to(half, known | {"steps": steps // len(halves)})


def rejoin(role: Role, version: int) -> None:
    """After `restore` without what was in flight: goes on with a learner of this version."""
    if isinstance(role, Actor):
        _rejoin_actor(role, version)
    elif isinstance(role, Inference):
        role.rejoin(version)
    elif isinstance(role, Buffer):
        _rejoin_buffer(role, version)
    elif isinstance(role, Learner):
        role.publish()
        if role.fusion is not None:
            role.fusion.rejoin(version)
    elif isinstance(role, Reducer):
        role.came[:] = False


def _known(role: Role) -> AnyRole:
    assert isinstance(role, AnyRole)
    return role


def _actor_state(actor: Actor) -> State:
    """The policy's schedules and streams, and the episodes in progress where they can be kept."""
    return {
        "version": actor.version,
        "policy": state_of(actor.policy),
        "env": state_of(actor.env),
        "obs": actor.obs,
        "first": actor.first,
        "log": actor.log.state(),
        "trajectory": actor.trajectory.state(),
    }


def _restore_actor(actor: Actor, state: State) -> None:
    """In the same episodes, or in new ones where the environment cannot go on."""
    actor.version = state["version"]
    restore_to(actor.policy, state["policy"])
    actor.log.restore(state["log"])
    actor.trajectory.restore(state["trajectory"])
    if restore_to(actor.env, state["env"]):
        actor.obs, actor.first = _observed(state["obs"]), np.array(state.get("first", False))
        return
    actor.obs = actor.env.reset(fresh_seed(actor.seed, int(actor.counts[Count.PRODUCED])))
    actor.log.begin_anew()
    actor.first = np.ones(actor.env.spec.n_envs, np.bool_)
    actor.trajectory.give_up()


def _env_actor_state(actor: EnvActor) -> State:
    """The episodes in progress, where they can be kept."""
    env, log = state_of(actor.env), actor.log.state()
    return {"stream": actor.stream, "env": env, "obs": actor.obs, "log": log}


def _restore_env_actor(actor: EnvActor, state: State) -> None:
    """In the same episodes or in new ones; whoever acts for it is told where it is."""
    actor.log.restore(state["log"])
    if restore_to(actor.env, state["env"]):
        actor.obs = _observed(state["obs"])
    else:
        actor.begin_episodes()
    actor.stream = state["stream"] + 1
    actor.begin()


def _observed(obs: State) -> Arrays:
    """What was observed last, by name; checkpoints of version 0.2 had one array."""
    named = obs if isinstance(obs, dict) else {"obs": obs}
    return {name: np.array(array) for name, array in named.items()}


def _rejoin_actor(actor: Actor, version: int) -> None:
    """What was begun is lost, and a synchronous actor owes all that this version has to come."""
    actor.version = -1
    actor.counts[Count.MESSAGES] = 0  # its channel is a new one
    actor.trajectory.give_up()
    if actor.per_version is not None:
        actor.trajectory.sent = version * actor.per_version
        actor.counts[Count.PUSHED] = actor.trajectory.sent  # by which the next life goes


def _buffer_state(buffer: Buffer) -> State:
    """The balance and the samples; `store` may be set to None where samples are not kept."""
    return {
        "received": buffer.received,
        "handed": buffer.handed,
        "next": buffer.next,
        "opening": buffer.opening,
        "refused": buffer.batches.refused,
        "balance": buffer.balance.state(),
        "store": state_of(buffer.store),
    }


def _restore_buffer(buffer: Buffer, state: State) -> None:
    """With the samples that were kept; without them, as after a second warm-up."""
    buffer.received, buffer.handed = state["received"], state["handed"]
    buffer.next, buffer.batches.refused = state["next"], state["refused"]
    buffer.opening = state.get("opening", 0)
    buffer.balance.restore(state["balance"])
    if not restore_to(buffer.store, state["store"]):
        _owe_nothing(buffer)


def _rejoin_buffer(buffer: Buffer, version: int) -> None:
    """Batches that were not learned from by then are drawn again, or lost where each goes once."""
    gone = buffer.store.rejoin(buffer.handed - version)
    buffer.balance.forget(gone.units)
    buffer.counts[Count.DROPPED] += gone.steps
    buffer.handed = version
    buffer.balance.consumed = version * buffer.balance.batch
    if version:
        buffer.opening = 0  # before the first batch everybody was heard
    if not buffer.store.size():
        _owe_nothing(buffer)
        buffer.received = int(buffer.counts[Count.RECEIVED])


def _owe_nothing(buffer: Buffer) -> None:
    """Where no sample was kept: what was consumed had been earned, and the warm-up comes again."""
    buffer.balance.received = math.ceil(buffer.balance.consumed / buffer.balance.ratio)


def _learner_state(learner: Learner) -> State:
    """The algorithm with its optimiser and streams; `weights` is what an actor would need."""
    return {
        "version": learner.version,
        "published": learner.published,
        "weights": learner.algorithm.weights(),
        "algorithm": learner.algorithm.state(),
        "consumption": learner.consumption.state(),
        "fusion": state_of(learner.fusion),
    }


def _restore_learner(learner: Learner, state: State) -> None:
    learner.version, learner.published = state["version"], state["published"]
    learner.algorithm.restore(state["algorithm"])
    learner.consumption.restore(state["consumption"])
    restore_to(learner.fusion, state.get("fusion"))
