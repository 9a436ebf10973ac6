"""Whether an exported policy of several agents acts as the one that was trained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tianji.core.algorithm import PolicyGraph
from tianji.core.frames import FIRST, MEMORY
from tianji.core.schema import Arrays
from tianji.runs.trained import Trained
from tianji.tools.export import DRAWN, PLAYED, Parity, parity_of

LEAST_ROUNDS = 16  # one after the other, so that what is remembered matters
MOST_FORGET = 0.1  # of the environments begin an episode in a round that is drawn

Bools = npt.NDArray[np.bool_]


def compare(trained: Trained, graph: PolicyGraph, session: Any) -> Parity:
    """Runs the graph and the policy side by side, each with what it remembers itself."""
    actions, expected, scores, wanted, masks = [], [], [], [], []
    memory = None
    for obs, first, action in _rounds(trained):
        known = {**obs, "obs": obs["obs"].astype(np.float32), FIRST: first, MEMORY: memory}
        if MEMORY in graph.inputs and memory is None:
            known[MEMORY] = np.zeros(_memory_shape(session, len(first)), np.float32)
        found = session.run(None, {name: known[name] for name in graph.inputs})
        memory = found[2] if MEMORY in graph.inputs else None
        actions.append(found[0])
        scores.append(found[1])
        expected.append(action)
        wanted.append(graph.scores(obs["obs"], first))
        masks.append(obs.get("mask", np.ones_like(found[1], np.bool_)))
    flat = [np.concatenate(each) for each in (actions, expected, scores, wanted, masks)]
    did, right, said, meant, mask = (each.reshape(-1, *each.shape[2:]) for each in flat)
    return parity_of(trained, did, right, said, meant, np.where(mask, meant, -np.inf))


def _rounds(trained: Trained, seed: int = 0) -> Iterator[tuple[Arrays, Bools, npt.NDArray[Any]]]:
    """What is seen, where episodes begin, and what the policy does: played, and then drawn."""
    env = trained.environment()
    n_envs, obs = env.spec.n_envs, env.reset(seed)
    first, seen = np.ones(n_envs, np.bool_), []
    n_rounds = max(LEAST_ROUNDS, -(-PLAYED // n_envs))
    for _ in range(n_rounds):
        seen.append({name: np.array(array) for name, array in obs.items()})
        action = trained.act(seen[-1], first)
        yield seen[-1], first, action
        step = env.step(action)
        obs, first = step.obs, step.first.copy()
    env.close()
    random, played = np.random.default_rng(seed), np.stack([each["obs"] for each in seen])
    low, high = played.min((0, 1)).astype(np.float32), played.max((0, 1)).astype(np.float32)
    margin = (high - low) / 2 + 0.1
    for t in range(max(LEAST_ROUNDS, -(-DRAWN // n_envs))):
        drawn = random.uniform(low - margin, high + margin, played.shape[1:])
        if played.dtype == np.uint8:
            drawn = drawn.clip(0, 255)
        obs = {**seen[random.integers(n_rounds)], "obs": drawn.astype(played.dtype)}
        first = random.random(n_envs) < (MOST_FORGET if t else 2.0)
        yield obs, first, trained.act(obs, first)


def _memory_shape(session: Any, n_envs: int) -> tuple[int, ...]:
    (value,) = (each for each in session.get_inputs() if each.name == MEMORY)
    return n_envs, *value.shape[1:]
