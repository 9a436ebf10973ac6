"""DQN: double, dueling, n-step, with an exploration schedule per actor."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from tianji.config.binder import key
from tianji.core.algorithm import Algorithm, PolicyGraph, Task, Weights, learning_rate
from tianji.core.env import BoolArray
from tianji.core.errors import TianJiError
from tianji.core.lazy import torch
from tianji.core.schema import Arrays
from tianji.core.state import State, random_state, restore_random
from tianji.models.layout import MLPLayout, NumpyMLP
from tianji.models.tensors import array_of, copy_into
from tianji.stores.replay import Replay


@dataclass(frozen=True)
class DQNHyp:
    """Hyper-parameters of DQN, under the paper's names."""

    lr: float = key(5e-4, "learning rate of Adam", above=0)
    lr_decay: int | None = key(
        None, "updates over which lr falls in a line to lr_final; None: it stays", at_least=1
    )
    lr_final: float = key(0.0, "learning rate after lr_decay updates", at_least=0)
    gamma: float = key(0.99, "discount per step", at_least=0, at_most=1)
    epsilon: float = key(0.02, "final probability of a random action", at_least=0, at_most=1)
    max_decay_step: int = key(
        2_000, "environment steps over which epsilon falls from 1 to its final value", at_least=0
    )
    epsilon_spread: float = key(
        0.0,
        "actor i of N explores with epsilon ** (1 + spread * i / (N - 1)); 0: all alike",
        at_least=0,
    )
    batch_size: int = key(32, "samples per update", at_least=1)
    buffer_size: int = key(2_048, "samples kept", at_least=1)
    warmup_size: int = key(32, "samples received before the first update", at_least=0)
    warmup_full_random: bool = key(False, "act at random until the warm-up is over")
    target_replace_iter: int = key(
        100, "updates from one copy into the target network to the next", at_least=1
    )
    double_q: bool = key(True, "choose the next action with the online network")
    loss: Literal["huber", "mse"] = key("huber", "of the TD error")
    n_step: int = key(1, "steps of reward before bootstrapping", at_least=1)
    updates_per_step: float = key(1.0, "updates per environment step in serial training", above=0)
    clip_grad_norm: float | None = key(
        None, "largest norm of the gradient; None: no limit", above=0
    )
    adam_eps: float = key(1e-8, "epsilon of Adam", above=0)


class EpsilonGreedy:
    """Acts greedily on numpy Q-values, at random with probability epsilon."""

    def __init__(self, task: Task, actor: int, seed: int) -> None:
        hyp: DQNHyp = task.hyp
        spread = hyp.epsilon_spread * actor / max(1, task.n_actors - 1)
        self._final: float = hyp.epsilon ** (1 + spread)
        self._decay = hyp.max_decay_step / task.n_actors  # of this actor's own steps
        self._random_until = hyp.warmup_size / task.n_actors if hyp.warmup_full_random else 0
        self._n_actions = _n_actions(task)
        self._network, self._gather = NumpyMLP(layout(task)), task.env.gather
        self._random = np.random.default_rng(seed)
        self._steps = 0

    def load(self, weights: Weights, version: int) -> None:
        """Copies the online network's weights."""
        self._network.load(weights)

    @property
    def epsilon(self) -> float:
        """Probability of a random action at the current step."""
        if self._steps < self._random_until:
            return 1.0
        if self._steps >= self._decay:
            return self._final
        return 1.0 + (self._final - 1.0) * self._steps / self._decay

    def act(self, obs: Arrays, first: BoolArray, explore: bool = True) -> Arrays:
        """One action per environment."""
        action = self._network(self._gather(obs)).argmax(1)
        if explore:
            at_random = self._random.random(len(action)) < self.epsilon
            if at_random.any():
                action[at_random] = self._random.integers(self._n_actions, size=at_random.sum())
            self._steps += len(action)
        return {"action": action}

    def state(self) -> State:
        """The weights, the stream of draws, and the steps that epsilon depends on."""
        return {
            "weights": self._network.flat,
            "random": random_state(self._random),
            "steps": self._steps,
        }

    def restore(self, state: State) -> None:
        """Explores on where another policy stopped."""
        self._network.load(state["weights"])
        restore_random(self._random, state["random"])
        self._steps = state["steps"]


class DQN(Algorithm):
    """Q-learning from replayed samples (Mnih et al. 2015; double and dueling as options)."""

    Hyp = DQNHyp
    scalars: ClassVar[tuple[str, ...]] = ("loss", "q_mean", "target_mean")

    def __init__(self, task: Task, seed: int, device: str = "cpu") -> None:
        super().__init__(task, seed, device)
        from tianji.models.adam import Adam
        from tianji.models.mlp import MLP, FlatParameters

        self.hyp: DQNHyp = task.hyp
        self._device = device
        generator = torch.Generator().manual_seed(seed)
        self.online = MLP(layout(task)).uniform(generator)
        self.target = MLP(layout(task)).requires_grad_(False)
        self._parameters = FlatParameters(list(self.online.parameters()), device)
        self._target_parameters = FlatParameters(list(self.target.parameters()), device)
        self._optimiser = Adam(
            self._parameters.vector, self._parameters.gradient, self.hyp.lr, eps=self.hyp.adam_eps
        )
        self._updates = 0
        self._copy_to_target()

    @classmethod
    def policy(cls, task: Task, actor: int, seed: int) -> EpsilonGreedy:
        """Epsilon-greedy, in numpy."""
        return EpsilonGreedy(task, actor, seed)

    @classmethod
    def sampling(cls, task: Task) -> Replay:
        """Uniform replay."""
        h: DQNHyp = task.hyp
        return Replay(
            h.batch_size, h.buffer_size, h.warmup_size, h.gamma, h.n_step, h.updates_per_step
        )

    @classmethod
    def n_weights(cls, task: Task) -> int:
        """Weights of the online network."""
        return layout(task).n_weights

    @classmethod
    def exported(cls, task: Task, weights: Weights) -> PolicyGraph:
        """The greedy action, and the Q-values that it is the best of."""
        from tianji.algorithms.exported import perceptron

        return perceptron(layout(task), weights, task.env, "q")

    def updates(self, batch: Arrays) -> Generator[Weights, None, dict[str, float]]:
        """One step of Adam on the TD error."""
        gather = self.task.env.gather
        used = {name: batch[name] for name in ("action", "reward", "discount")}
        used |= {"obs": gather(batch), "next_obs": gather(batch, "next_")}
        b = {name: torch.from_numpy(array).to(self._device) for name, array in used.items()}
        with (
            torch.no_grad()
        ):  # truncation is not termination: `discount` is 0 only where the task ended
            next_q = self.target(b["next_obs"])
            if self.hyp.double_q:
                best = self.online(b["next_obs"]).argmax(1, keepdim=True)
                next_value = next_q.gather(1, best).squeeze(1)
            else:
                next_value = next_q.amax(1)
            goal = b["reward"] + b["discount"] * next_value
        q = self.online(b["obs"]).gather(1, b["action"][:, None]).squeeze(1)
        measure = torch.nn.functional
        loss = (measure.smooth_l1_loss if self.hyp.loss == "huber" else measure.mse_loss)(q, goal)
        h = self.hyp
        self._parameters.backward(loss)
        if self.task.n_learners > 1:
            yield from self._parameters.exchanged()
        self._parameters.clip(h.clip_grad_norm)
        self._optimiser.lr = learning_rate(h.lr, h.lr_final, h.lr_decay, self._updates)
        self._optimiser.step()
        self._updates += 1
        if self._updates % self.hyp.target_replace_iter == 0:
            self._copy_to_target()
        means = {"q_mean": q.detach().mean().item(), "target_mean": goal.mean().item()}
        return {"loss": loss.item(), **means}

    def _copy_to_target(self) -> None:
        self._target_parameters.vector.copy_(self._parameters.vector)

    def weights(self) -> Weights:
        """The online network."""
        return self._parameters.vector.cpu().numpy()

    def load(self, weights: Weights) -> None:
        """Sets the online network, and the target network with it."""
        self._parameters.vector.copy_(torch.from_numpy(weights))
        self._copy_to_target()

    def shift(self, delta: Weights) -> None:
        """Moves the online network; the target network follows at its next copy."""
        self._parameters.vector += torch.from_numpy(delta).to(self._device)

    def state(self) -> State:
        """Both networks, the optimiser and the number of updates."""
        return {
            "parameters": array_of(self._parameters.vector),
            "target": array_of(self._target_parameters.vector),
            "optimiser": self._optimiser.state(),
            "updates": self._updates,
        }

    def restore(self, state: State) -> None:
        """Learns on where another stopped."""
        copy_into(self._parameters.vector, state["parameters"], "parameters")
        copy_into(self._target_parameters.vector, state["target"], "target parameters")
        self._optimiser.restore(state["optimiser"])
        self._updates = state["updates"]


def _n_actions(task: Task) -> int:
    if task.env.n_actions is None:
        raise TianJiError(
            f"DQN needs a discrete action space; this environment's actions are {task.env.action}: "
            "use agent = dict(type='PPO', ...)"
        )
    return task.env.n_actions


def layout(task: Task) -> MLPLayout:
    """The Q-network of a job: one output per action."""
    m = task.model
    return MLPLayout(task.env.n_inputs, tuple(m.hidden), _n_actions(task), m.act, m.dueling)
