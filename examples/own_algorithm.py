"""An algorithm of one's own: advantage actor-critic (A2C), both halves in one file.

Train with it by `tianji train examples/own_algorithm_config.py`. The acting half is numpy, so the
processes of actors never load torch; the learning half is one page of torch.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import tianji
from tianji import Arrays, State, Task, Weights, key, torch


@dataclass(frozen=True)
class Hyp:
    """The keys of the config's `hyp`."""

    lr: float = key(5e-3, "learning rate of Adam", above=0)
    gamma: float = key(0.99, "discount per step", at_least=0, at_most=1)
    step_len: int = key(16, "steps per rollout and environment (T)", at_least=1)
    vf_coef: float = key(0.5, "weight of the value loss", at_least=0)
    ent_coef: float = key(0.01, "weight of the entropy bonus", at_least=0)


class Softmax:
    """The acting half: draws an action by the probabilities that the network gives."""

    def __init__(self, task: Task, seed: int) -> None:
        self._network = network(task, task.env.n_actions).forward(task.device)
        self._random = np.random.default_rng(seed)

    def load(self, weights: Weights, version: int) -> None:
        """Copies what the learner published."""
        self._network.load(weights)

    def act(self, obs: Arrays, first: Any, explore: bool = True) -> Arrays:
        """One action for each of E observations; `first` says where an episode begins."""
        logits = self._network(obs["obs"])
        if explore:  # the largest of logits plus Gumbel noise is a draw from their softmax
            logits += self._random.gumbel(size=logits.shape)
        return {"action": logits.argmax(1)}

    def state(self) -> State:
        """What a checkpoint keeps of an actor; optional."""
        return {"weights": self._network.flat, "random": tianji.random_state(self._random)}

    def restore(self, state: State) -> None:
        """Draws on where the policy stopped."""
        self._network.load(state["weights"])
        tianji.restore_random(self._random, state["random"])


class A2C(tianji.Algorithm):
    """The learning half: one gradient step per batch, on advantages over a learned value."""

    Hyp = Hyp
    scalars = ("policy_loss", "value_loss", "entropy")

    def __init__(self, task: Task, seed: int, device: str = "cpu") -> None:
        super().__init__(task, seed, device)
        self.hyp: Hyp = task.hyp
        generator = torch.Generator().manual_seed(seed)
        self.actor = network(task, task.env.n_actions).module(generator, last_gain=0.01)
        self.critic = network(task, 1).module(generator, last_gain=1.0)
        parameters = [*self.actor.parameters(), *self.critic.parameters()]
        self._flat = tianji.FlatParameters(parameters)
        self._optimiser = tianji.Adam(self._flat, self.hyp.lr)

    @classmethod
    def policy(cls, task: Task, actor: int, seed: int) -> Softmax:
        """What every actor acts with."""
        return Softmax(task, seed)

    @classmethod
    def rollout_length(cls, task: Task) -> int:
        """T."""
        return int(task.hyp.step_len)

    @classmethod
    def sampling(cls, task: Task) -> tianji.Rollouts:
        """A batch is one rollout of each actor, made with the newest weights (`per_version=1`)."""
        n, steps = task.n_actors, task.hyp.step_len * task.env.n_envs
        return tianji.Rollouts(batch=n, pool=n, steps=steps, per_version=1)

    @classmethod
    def n_weights(cls, task: Task) -> int:
        """Actors need the policy network, not the values."""
        return network(task, task.env.n_actions).n_weights

    def n_left_out(self) -> int:
        """Updates that were skipped for a NaN; without this method the first one ends the run."""
        return self._optimiser.n_left_out

    def learn(self, batch: Arrays) -> dict[str, float]:
        """One step of Adam; arrays are [n, T, E], and `obs` is [n, T+1, E, ...]."""
        obs = torch.from_numpy(batch["obs"])
        value = self.critic(obs.flatten(0, 2)).view(obs.shape[:3])
        goal = torch.from_numpy(self._returns(batch, value.detach().numpy()))
        valid = torch.from_numpy(batch["valid"])  # rows that only reset are not learned from
        error = (goal - value[:, :-1])[valid]
        log_p = torch.log_softmax(self.actor(obs[:, :-1][valid]), 1)
        chosen = log_p.gather(1, torch.from_numpy(batch["action"])[valid][:, None]).squeeze(1)
        entropy = -(log_p.exp() * log_p).sum(1).mean()
        policy_loss = -(chosen * error.detach()).mean()
        value_loss = error.square().mean()
        loss = policy_loss + self.hyp.vf_coef * value_loss - self.hyp.ent_coef * entropy
        self._flat.backward(loss, max_norm=0.5)
        self._optimiser.step()
        return {
            "policy_loss": policy_loss.item(),
            "value_loss": value_loss.item(),
            "entropy": entropy.item(),
        }

    def _returns(self, batch: Arrays, value: Any) -> Any:
        """Discounted rewards, and the value where an episode was cut off or the rollout ends."""
        goal, after = np.empty_like(value[:, :-1]), value[:, -1]
        for t in reversed(range(goal.shape[1])):
            after = np.where(batch["truncated"][:, t], value[:, t + 1], after)
            goal[:, t] = batch["reward"][:, t] + self.hyp.gamma * after * ~batch["terminated"][:, t]
            after = np.where(batch["valid"][:, t], goal[:, t], value[:, t])
        return goal

    def weights(self) -> Weights:
        """The policy network, which lies first in the flat vector."""
        return self._flat.vector[: self.n_weights(self.task)].numpy()

    def load(self, weights: Weights) -> None:
        """The inverse of `weights`."""
        self._flat.vector[: self.n_weights(self.task)] = torch.from_numpy(weights)

    def state(self) -> State:
        """What a checkpoint keeps of the learner; without it, the published weights alone."""
        return {"parameters": self._flat.vector.numpy(), "optimiser": self._optimiser.state()}

    def restore(self, state: State) -> None:
        """Copies into the tensor there is: the networks' parameters are views of it."""
        self._flat.vector.copy_(torch.tensor(state["parameters"]))
        self._optimiser.restore(state["optimiser"])


def network(task: Task, n_outputs: int | None) -> tianji.Network:
    """The config's network with `n_outputs` outputs."""
    assert n_outputs is not None, "this example chooses among n actions"
    return tianji.network_of(task, n_outputs)
