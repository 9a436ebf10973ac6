"""PPO: synchronous, or asynchronous with a bound on the policy lag and a correction for it."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from tianji.algorithms.actor_critic import ActorCritic, n_spread, policy_layout, value_layout
from tianji.algorithms.advantages import Gains, Importance, Moments, Samples, advantages, pooled
from tianji.algorithms.policies import CategoricalPolicy, GaussianPolicy
from tianji.config.binder import key
from tianji.core.algorithm import Algorithm, Policy, PolicyGraph, Task, Weights, learning_rate
from tianji.core.errors import TianJiError
from tianji.core.lazy import torch
from tianji.core.schema import Arrays, Field
from tianji.core.state import State, random_state, restore_random
from tianji.models.layout import Floats
from tianji.models.tensors import array_of, copy_into
from tianji.stores.rollouts import Rollouts


@dataclass(frozen=True)
class PPOHyp:
    """Hyper-parameters of PPO, under the paper's names."""

    lr: float = key(2.5e-3, "learning rate of Adam", above=0)
    lr_decay: int | None = key(
        None, "updates over which lr falls in a line to lr_final; None: it stays", at_least=1
    )
    lr_final: float = key(0.0, "learning rate after lr_decay updates", at_least=0)
    gamma: float = key(0.99, "discount per step", at_least=0, at_most=1)
    gae_lambda: float = key(
        0.95, "lambda of generalised advantage estimation", at_least=0, at_most=1
    )
    clip_param: float = key(
        0.2, "largest change of the probability ratio that still earns anything", above=0
    )
    update_step: int = key(4, "epochs over a batch", at_least=1)
    batch_size: int | None = key(
        None, "rollouts per update; default: one from each actor", at_least=1
    )
    step_len: int = key(64, "steps per rollout and environment", at_least=1)
    minibatch: int = key(512, "samples per step of the optimiser", at_least=1)
    buffer_size: int | None = key(
        None,
        "rollouts in the pool that a batch is drawn from; default: batch_size, all new",
        at_least=1,
    )
    warmup_size: int = key(
        1, "rollouts before the first update; a batch is waited for in any case", at_least=0
    )
    ent_coef: float = key(0.0, "weight of the entropy bonus", at_least=0)
    vf_coef: float = key(0.5, "weight of the value loss", at_least=0)
    max_grad_norm: float | None = key(0.5, "largest norm of the gradient; None: no limit", above=0)
    adam_eps: float = key(1e-5, "epsilon of Adam", above=0)
    mode: Literal["sync", "async"] = key(
        "sync",
        "sync: every sample is of the learner's version; async: of at most max_lag before; a pool "
        "larger than a batch (buffer_size) makes both Lag-k",
    )
    max_lag: int | None = key(
        None,
        "async: versions that a rollout may be behind, older ones are dropped; default: what can "
        "be in flight, actors / batch_size + 1",
        at_least=1,
    )
    correction: Literal["none", "clip", "vtrace"] = key(
        "none", "async: importance weight on old samples, clipped at 1, or V-trace targets"
    )


class PPO(Algorithm):
    """Clipped policy gradient on fresh samples (Schulman et al. 2017)."""

    Hyp = PPOHyp
    scalars: ClassVar[tuple[str, ...]] = (
        "policy_gradient_loss",
        "value_loss",
        "entropy_loss",
        "approx_kl",
        "clip_fraction",
    )

    def __init__(self, task: Task, seed: int, device: str = "cpu") -> None:
        super().__init__(task, seed, device)
        from tianji.models.adam import Adam

        self.hyp: PPOHyp = task.hyp
        self._device = device
        self._discrete = task.env.n_actions is not None
        self.networks = ActorCritic(task, seed, device)
        self._parameters = self.networks.flat
        self._optimiser = Adam(
            self._parameters.vector, self._parameters.gradient, self.hyp.lr, eps=self.hyp.adam_eps
        )
        self._n_published = self.n_weights(task)
        self._random = np.random.default_rng(seed)
        self._updates = 0

    @classmethod
    def fields(cls, task: Task) -> tuple[Field, ...]:
        """The density of what was drawn, and the draw itself where bounds may have changed it."""
        logp = Field("logp", "float32")
        if task.env.n_actions is not None:
            return (logp,)
        return (logp, Field("raw", "float32", (policy_layout(task).n_outputs,)))

    @classmethod
    def rollout_length(cls, task: Task) -> int:
        """`step_len`."""
        return int(task.hyp.step_len)

    @classmethod
    def alternates(cls, hyp: PPOHyp, n_actors: int) -> bool:
        """In the synchronous mode actors and learner never work at the same time."""
        batch = hyp.batch_size or n_actors
        return hyp.mode == "sync" and (hyp.buffer_size or batch) <= batch

    @classmethod
    def policy(cls, task: Task, actor: int, seed: int) -> Policy:
        """A numpy policy for either kind of action."""
        if task.env.n_actions is not None:
            return CategoricalPolicy(policy_layout(task), task.env, seed)
        return GaussianPolicy(policy_layout(task), task.env, seed)

    @classmethod
    def sampling(cls, task: Task) -> Rollouts:
        """Whole rollouts, each learned from once."""
        h: PPOHyp = task.hyp
        batch = h.batch_size or task.n_actors
        pool = max(h.buffer_size or batch, batch)
        if h.warmup_size > pool:
            raise TianJiError(
                f"hyp.warmup_size: PPO begins with the {pool} rollouts of its pool and cannot wait "
                f"for {h.warmup_size}: lower it, or raise hyp.buffer_size"
            )
        rows = h.step_len * task.env.n_envs
        if pool > batch:  # Lag-k: old samples are what is asked for
            return Rollouts(batch, pool, rows)
        if h.mode == "async":
            return Rollouts(batch, pool, rows, max_lag=_bound_of_lag(h, task.n_actors, batch))
        if batch % task.n_actors:
            raise TianJiError(
                f"hyp.batch_size: {batch} rollouts per update cannot come in equal shares from "
                f"{task.n_actors} actors: use a multiple of {task.n_actors}, or mode='async'"
            )
        return Rollouts(batch, pool, rows, per_version=batch // task.n_actors)

    @classmethod
    def n_weights(cls, task: Task) -> int:
        """Weights of the policy alone: an actor needs no values."""
        return policy_layout(task).n_weights + n_spread(task)

    @classmethod
    def n_parameters(cls, task: Task) -> int:
        """Those of the value network too."""
        return cls.n_weights(task) + value_layout(task).n_weights

    @classmethod
    def exported(cls, task: Task, weights: Weights) -> PolicyGraph:
        """The likeliest action and its logits, or the mean action within its bounds."""
        from tianji.algorithms.exported import perceptron

        scores = "mean" if task.env.n_actions is None else "logits"
        return perceptron(policy_layout(task), weights, task.env, scores)

    def updates(self, batch: Arrays) -> Generator[Weights, None, dict[str, float]]:
        """Several epochs of minibatches over one batch of rollouts.

        Several learners normalise advantages over the whole batch, and each of them counts by its
        number of samples; so an update of one minibatch is what one learner would have made. Their
        first vector holds the sums that the moments follow from, all others are gradients. One
        learner yields nothing: a yield brings the gradient of a GPU to the CPU and back.
        """
        h, alone, measures = self.hyp, self.task.n_learners == 1, None
        samples = self._prepare(batch)
        gains = samples.gains
        moments = gains.moments() if alone else (yield from self._pooled(gains))
        self._optimiser.lr = learning_rate(h.lr, h.lr_final, h.lr_decay, self._updates)
        self._updates += 1
        if not moments.n:
            return dict.fromkeys(self.scalars, 0.0)
        gain = gains.normalised(moments).to(self._device)
        share = len(gain) / moments.n  # of this learner among all; 1 if it is alone
        for _ in range(h.update_step):
            columns = (samples.obs, samples.action, samples.logp, gain, samples.target)
            for part in self._minibatches(columns, batch["valid"].size):
                if len(part[0]):  # of several learners one may have none left
                    loss, measures = self._loss(*part)
                    self._parameters.backward(loss * share)
                else:
                    self._parameters.gradient.zero_()
                if not alone:
                    yield from self._parameters.exchanged()
                self._parameters.clip(h.max_grad_norm)
                self._optimiser.step()
        return dict.fromkeys(self.scalars, 0.0) if measures is None else _measured(*measures)

    def _pooled(self, gains: Gains) -> Generator[Weights, None, Moments]:
        """The moments of all learners' samples; the vector of a gradient carries the sums."""
        sums, gradient = gains.sums(), self._parameters.gradient.zero_()
        gradient[: len(sums)] = torch.tensor(sums)
        yield from self._parameters.exchanged()
        return pooled(gradient[: len(sums)].tolist(), self.task.n_learners)

    def _prepare(self, batch: Arrays) -> Samples:
        """Picks the valid samples, and finds their advantages and targets."""
        obs = torch.from_numpy(self.task.env.gather(batch)).to(self._device)
        value = self.networks.values(obs)
        picked = torch.from_numpy(np.flatnonzero(batch["valid"]))
        chosen = batch["action" if self._discrete else "raw"]
        action = torch.from_numpy(chosen).flatten(0, 2)[picked]
        flat_obs = obs[:, :-1].flatten(0, 2)[picked.to(self._device)]
        old = torch.from_numpy(batch["logp"]).flatten()[picked]
        weight = self._importance(batch, flat_obs, action, old, picked)
        advantage, target = advantages(
            batch, value, self._final_values(batch), self.hyp.gamma, self.hyp.gae_lambda, weight
        )
        if weight is not None:
            old = weight.logp  # the ratio that is clipped starts from the present policy
        gain, goal = (torch.from_numpy(a.ravel())[picked] for a in (advantage, target))
        gains = Gains(gain)
        if weight is not None:
            clipped = torch.from_numpy(weight.clipped.ravel())[picked]
            gains = Gains(gain, clipped, weight.vtrace)
        action, old, goal = (tensor.to(self._device) for tensor in (action, old, goal))
        return Samples(flat_obs, action, old, goal, gains)

    def _importance(
        self,
        batch: Arrays,
        obs: torch.Tensor,
        action: torch.Tensor,
        old: torch.Tensor,
        picked: torch.Tensor,
    ) -> Importance | None:
        """How much likelier each action is under the present policy, if a correction is wanted."""
        if self.hyp.mode == "sync" or self.hyp.correction == "none" or not len(picked):
            return None
        with torch.no_grad():
            logp, _ = self.networks.log_probability(obs, action.to(self._device))
        ratio = np.ones(batch["valid"].size, np.float32)
        ratio[picked.numpy()] = torch.exp(logp.cpu() - old).numpy()
        shape = batch["valid"].shape
        return Importance(ratio.reshape(shape), logp.cpu(), self.hyp.correction == "vtrace")

    def _final_values(self, batch: Arrays) -> Floats | None:
        """Values of last observations, where the environment resets within the step that ended."""
        if not self.task.env.same_step:
            return None
        final = torch.from_numpy(self.task.env.gather(batch, "final_"))
        return self.networks.values(final.to(self._device))

    def _minibatches(
        self, samples: tuple[torch.Tensor, ...], n_rows: int
    ) -> Iterator[tuple[torch.Tensor, ...]]:
        """Slices of nearly equal size, in a new order.

        Several learners have equally many, which therefore cannot depend on how many of their rows
        are valid.
        """
        total, n_learners = len(samples[0]), self.task.n_learners
        n_samples = total if n_learners == 1 else n_rows * n_learners
        n = max(1, round(n_samples / self.hyp.minibatch))
        order = torch.from_numpy(self._random.permutation(total)).to(self._device)
        return zip(*(t[order].tensor_split(n) for t in samples), strict=True)

    def _loss(
        self,
        obs: torch.Tensor,
        action: torch.Tensor,
        old: torch.Tensor,
        advantage: torch.Tensor,
        target: torch.Tensor,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """The clipped surrogate, the value loss and the entropy bonus of one minibatch."""
        h = self.hyp
        logp, entropy = self.networks.log_probability(obs, action)
        change = logp - old
        ratio = change.exp()
        clipped = ratio.clamp(1 - h.clip_param, 1 + h.clip_param)
        policy_loss = -torch.minimum(advantage * ratio, advantage * clipped).mean()
        value_loss = torch.nn.functional.mse_loss(self.networks.critic(obs).squeeze(1), target)
        loss = policy_loss + h.vf_coef * value_loss
        if h.ent_coef:
            loss = loss - h.ent_coef * entropy
        return loss, (policy_loss, value_loss, entropy, change, ratio, clipped)

    def weights(self) -> Weights:
        """The policy network, which lies first in the flat vector."""
        return self._parameters.vector[: self._n_published].cpu().numpy()

    def load(self, weights: Weights) -> None:
        """Sets the policy network; values are left as they are."""
        self._parameters.vector[: self._n_published] = torch.from_numpy(weights)

    def parameters(self) -> Weights:
        """Both networks."""
        return array_of(self._parameters.vector)

    def shift(self, delta: Weights) -> None:
        """Moves both networks."""
        self._parameters.vector += torch.from_numpy(delta).to(self._device)

    def state(self) -> State:
        """Policy and values, the optimiser, the order of minibatches and the number of updates."""
        return {
            "parameters": array_of(self._parameters.vector),
            "optimiser": self._optimiser.state(),
            "random": random_state(self._random),
            "updates": self._updates,
        }

    def restore(self, state: State) -> None:
        """Learns on where another stopped."""
        copy_into(self._parameters.vector, state["parameters"], "parameters")
        self._optimiser.restore(state["optimiser"])
        restore_random(self._random, state["random"])
        self._updates = state["updates"]


def _measured(
    policy_loss: torch.Tensor,
    value_loss: torch.Tensor,
    entropy: torch.Tensor,
    change: torch.Tensor,
    ratio: torch.Tensor,
    clipped: torch.Tensor,
) -> dict[str, float]:
    """What is logged of an update: the figures of its last minibatch."""
    with torch.no_grad():
        return {
            "policy_gradient_loss": policy_loss.item(),
            "value_loss": value_loss.item(),
            "entropy_loss": -entropy.item(),
            "approx_kl": (ratio - 1 - change).mean().item(),
            "clip_fraction": (ratio != clipped).float().mean().item(),
        }


def _bound_of_lag(hyp: PPOHyp, n_actors: int, batch: int) -> int:
    """Updates that a rollout may be behind: what can be in flight, at least."""
    in_flight = math.ceil(n_actors / batch) + 1
    if hyp.max_lag is None:
        return in_flight
    if hyp.max_lag < in_flight:
        raise TianJiError(
            f"hyp.max_lag: {n_actors} actors with {batch} rollouts per update are up to "
            f"{in_flight} updates behind, and {hyp.max_lag} would drop what they make: "
            "raise max_lag or batch_size"
        )
    return hyp.max_lag
