"""PPO: synchronous, or asynchronous with a bound on the policy lag and a correction for it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from tianji.algorithms.base import (
    Gains,
    GradientAlgorithm,
    Importance,
    Moments,
    advantages,
    bound_of_lag,
    equal_share,
    pooled,
    surrogate_scalars,
)
from tianji.config.binder import key
from tianji.core.algorithm import Policy, PolicyGraph, Scalars, Task, Weights, learning_rate
from tianji.core.errors import TianJiError
from tianji.core.lazy import torch
from tianji.core.schema import Arrays, Field
from tianji.core.state import State, random_state, restore_random
from tianji.models.actor_critic import (
    ActorCritic,
    n_spread,
    n_value_weights,
    policy_fields,
    policy_network,
    policy_of,
)
from tianji.models.layout import Floats
from tianji.models.normaliser import LIMIT, Normaliser, Sums
from tianji.stores.rollouts import Rollouts

LR_RANGE = (1e-6, 1e-2)  # within which `kl_target` moves the learning rate


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
    normalise_obs: bool = key(False, "network inputs by their running mean and deviation")
    normalise_updates: int | None = key(
        None, "updates after which these statistics stay as they are; default: never", at_least=1
    )
    normalise_reward: bool = key(False, "rewards over the running deviation of the returns")
    normalise_value: bool = key(False, "value targets by the running mean and deviation of returns")
    value_clip: float | None = key(
        None, "largest change of a value that is still learned from; None: no limit", above=0
    )
    kl_target: float | None = key(
        None,
        "KL divergence of an update: lr falls where it is twice this, rises where half",
        above=0,
    )
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


class Samples(NamedTuple):
    """The valid samples of a batch; all but `rows` and `gains` on the learner's device."""

    inputs: Any  # a RolloutInputs
    rows: torch.Tensor  # where the samples lie in it
    action: torch.Tensor
    logp: torch.Tensor  # log-probability of the action where the clipped ratio starts from
    value: torch.Tensor  # before the update, as the network says it
    target: torch.Tensor  # of the value network
    gains: Gains  # advantages, not normalised yet, in the CPU's memory


class PPO(GradientAlgorithm):
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
        from tianji.models.optimisers import Adam

        self.hyp: PPOHyp = task.hyp
        self._discrete = task.env.choices is not None
        self.networks = ActorCritic(task, seed)
        self._inputs_norm, self._returns = _normalisers(task)
        kept = [each for each in (self._inputs_norm, self._returns) if each is not None]
        self._own(self.networks.parameters(), device, kept)
        self._optimiser = Adam(self._flat, self.hyp.lr, self.hyp.adam_eps)
        self._choose_precision(self.networks.actor, self.hyp.minibatch, task.model.precision)
        fresh = self.sampling(task).per_version is not None  # no sample is of an older policy
        self._recomputes = fresh and not policy_network(task).exact
        self._random = np.random.default_rng(seed)
        self._lr_factor, self._kl = 1.0, 0.0  # what `kl_target` made of the rate, and from what

    @classmethod
    def fields(cls, task: Task) -> tuple[Field, ...]:
        """The density of what was drawn, and the draw itself where bounds may have changed it."""
        return policy_fields(task)

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
        """A policy for either kind of action."""
        return policy_of(task, seed, task.hyp.normalise_obs)

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
            lag = bound_of_lag(h.max_lag, task.n_actors, batch)
            return Rollouts(batch, pool, rows, max_lag=lag)
        share = equal_share(batch, task.n_actors, ", or mode='async'")
        return Rollouts(batch, pool, rows, per_version=share)

    @classmethod
    def n_weights(cls, task: Task) -> int:
        """Weights of the policy: an actor needs no values, unless they are of the same network."""
        behind = sum(len(each.numbers) for each in _normalisers(task) if each is not None)
        return policy_network(task).n_weights + n_spread(task) + behind

    @classmethod
    def n_parameters(cls, task: Task) -> int:
        """Those of the value network too."""
        return cls.n_weights(task) + n_value_weights(task)

    @classmethod
    def exported(cls, task: Task, weights: Weights) -> PolicyGraph:
        """The likeliest action and its logits, or the mean action within its bounds."""
        from tianji.models.export import exported

        scores = "mean" if task.env.choices is None else "logits"
        norm = _normalisers(task)[0]
        return exported(policy_network(task), weights, task.env, scores, n_spread(task), norm)

    def stage(self, batch: Arrays) -> Any:
        """What is large goes to the device; the rest is looked at where it is."""
        from tianji.models.inputs import RolloutInputs

        return batch, RolloutInputs(self.task.env, batch, self._stage, self._inputs_norm)

    def updates(self, batch: Any) -> Generator[Weights, None, Scalars]:
        """Several epochs of minibatches over one batch of rollouts.

        Several learners normalise advantages over the whole batch, and each of them counts by its
        number of samples; so an update of one minibatch is what one learner would have made. Their
        first vector holds the sums that the moments follow from, all others are gradients. One
        learner yields nothing: a yield brings the gradient of a GPU to the CPU and back.
        """
        arrays, inputs = batch
        h, measures = self.hyp, None
        samples, sums = self._prepare(arrays, inputs)
        gains = samples.gains
        if self.task.n_learners == 1:
            moments, kl = gains.moments(), self._kl
        else:
            moments, kl, sums = yield from self._pooled(gains, sums)
        self._optimiser.lr = self._rate(kl)
        self._n_updates += 1
        if not moments.n:
            return dict.fromkeys(self.scalars, 0.0)
        gain = gains.normalised(moments).to(self._device)
        share = len(gain) / moments.n  # of this learner among all; 1 if it is alone
        for _ in range(h.update_step):
            for part in self._minibatches(samples, gain, arrays["valid"].size):
                loss = None
                if len(part[0]):  # of several learners one may have none left
                    loss, measures = self._loss(samples.inputs, *part)
                    loss = loss * share
                yield from self._descend(loss, h.max_grad_norm)
        self._normalise(sums)
        if measures is None:
            return dict.fromkeys(self.scalars, 0.0)
        measured = surrogate_scalars(*measures)
        if h.kl_target is not None:
            self._kl = max(0.0, float(measured["approx_kl"]))
        return measured

    def _rate(self, kl: float) -> float:
        """The learning rate of the next update; `kl` is what the last one changed the policy by."""
        h = self.hyp
        lr = learning_rate(h.lr, h.lr_final, h.lr_decay, self._n_updates)
        if h.kl_target is None:
            return lr
        if kl > 2 * h.kl_target:
            self._lr_factor /= 1.5
        elif kl < h.kl_target / 2 and self._n_updates:
            self._lr_factor *= 1.5
        least, most = LR_RANGE
        bounded = min(max(lr * self._lr_factor, min(least, lr)), max(most, lr))
        self._lr_factor = bounded / lr if lr else 1.0
        return bounded

    def _normalise(self, sums: list[Sums]) -> None:
        """Only now: the policy that acted saw inputs as they were normalised before."""
        for normaliser, each in zip(self._normalisers if sums else (), sums, strict=True):
            normaliser.add(each)

    def _pooled(
        self, gains: Gains, sums: list[Sums]
    ) -> Generator[Weights, None, tuple[Moments, float, list[Sums]]]:
        """The same of all learners' samples; the vector of a gradient carries the sums."""
        own = [*gains.sums(), self._kl, *(float(x) for each in sums for x in each)]
        gradient = self._flat.gradient.zero_()
        gradient[: len(own)] = torch.tensor(own)
        yield from self._flat.exchanged()
        mean = gradient[: len(own)].tolist()
        n, start, summed = self.task.n_learners, 5, []
        for each in sums:
            summed.append(np.array(mean[start : start + len(each)]) * n)
            start += len(each)
        return pooled(mean[:4], n), mean[4], summed

    def _prepare(self, batch: Arrays, inputs: Any) -> tuple[Samples, list[Sums]]:
        """The valid samples with their advantages and targets, and sums for the normalisers."""
        own = self._recomputes
        out, value = inputs.through(self.networks, with_policy=own)
        rows = torch.from_numpy(np.flatnonzero(batch["valid"]))
        chosen = batch["action" if self._discrete else "raw"]
        action = torch.from_numpy(chosen).flatten(0, 2)[rows]
        old = torch.from_numpy(batch["logp"]).flatten()[rows]
        on_device = rows.to(self._device), action.to(self._device)
        if own and len(rows):  # an actor may compute less exactly: what it says is not quite ours
            with torch.no_grad():
                old = self.networks.log_probability(out[on_device[0]], on_device[1])[0]
        weight = self._importance(batch, inputs, on_device, old, rows)
        final = inputs.final(self.networks)
        advantage, target, returns = self._advantages(batch, value, final, weight)
        if weight is not None:
            old = weight.logp  # the ratio that is clipped starts from the present policy
        gain, goal = (torch.from_numpy(a.ravel())[rows] for a in (advantage, target))
        gains = Gains(gain)
        if weight is not None:
            clipped = torch.from_numpy(weight.clipped.ravel())[rows]
            gains = Gains(gain, clipped, weight.vtrace)
        before = torch.from_numpy(np.ascontiguousarray(value[:, :-1])).flatten()[rows]
        old, before, goal = (tensor.to(self._device) for tensor in (old, before, goal))
        limit, sums = self.hyp.normalise_updates, []
        learns = limit is None or self._n_updates < limit
        if learns and self._inputs_norm is not None:
            sums.append(self._inputs_norm.sums(inputs.numpy(batch)))
        if learns and self._returns is not None:
            sums.append(self._returns.sums(returns[batch["valid"]]))
        return Samples(inputs, *on_device, old, before, goal, gains), sums

    def _advantages(
        self, batch: Arrays, value: Floats, final: Floats | None, weight: Importance | None
    ) -> tuple[Floats, Floats, Floats]:
        """Advantages, targets as the value network is to say them, and plain returns."""
        h = self.hyp
        if self._returns is None:
            gain, target = advantages(batch, value, final, h.gamma, h.gae_lambda, weight)
            return gain, target, target
        mean, deviation = float(self._returns.mean), 1 / float(self._returns.scale)
        unit = deviation if h.normalise_reward else 1.0  # of rewards
        if h.normalise_reward:
            batch = batch | {"reward": np.clip(batch["reward"] / unit, -LIMIT, LIMIT)}
        shift, spread = (mean / unit, deviation / unit) if h.normalise_value else (0.0, 1.0)
        value = value * spread + shift
        final = None if final is None else final * spread + shift
        gain, target = advantages(batch, value, final, h.gamma, h.gae_lambda, weight)
        return gain, ((target - shift) / spread).astype(np.float32), target * unit

    def _importance(
        self,
        batch: Arrays,
        inputs: Any,
        on_device: tuple[torch.Tensor, torch.Tensor],
        old: torch.Tensor,
        picked: torch.Tensor,
    ) -> Importance | None:
        """How much likelier each action is under the present policy, if a correction is wanted."""
        if self.hyp.mode == "sync" or self.hyp.correction == "none" or not len(picked):
            return None
        rows, action = on_device
        with torch.no_grad():
            logp, _ = self.networks.log_probability(self.networks(inputs(rows))[0], action)
        ratio = np.ones(batch["valid"].size, np.float32)
        ratio[picked.numpy()] = torch.exp(logp.cpu() - old).numpy()
        shape = batch["valid"].shape
        return Importance(ratio.reshape(shape), logp.cpu(), self.hyp.correction == "vtrace")

    def _minibatches(
        self, samples: Samples, gain: torch.Tensor, n_rows: int
    ) -> Iterator[tuple[torch.Tensor, ...]]:
        """Slices of nearly equal size, in a new order.

        Several learners have equally many, which therefore cannot depend on how many of their rows
        are valid.
        """
        total, n_learners = len(gain), self.task.n_learners
        n_samples = total if n_learners == 1 else n_rows * n_learners
        n = max(1, round(n_samples / self.hyp.minibatch))
        order = torch.from_numpy(self._random.permutation(total)).to(self._device)
        s = samples
        columns = (s.rows, s.action, s.logp, s.value, gain, s.target)
        return zip(*(t[order].tensor_split(n) for t in columns), strict=True)

    def _loss(
        self,
        inputs: Any,
        rows: torch.Tensor,
        action: torch.Tensor,
        old: torch.Tensor,
        before: torch.Tensor,
        advantage: torch.Tensor,
        target: torch.Tensor,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """The clipped surrogate, the value loss and the entropy bonus of one minibatch."""
        h = self.hyp
        out, value = self.networks(inputs(rows))
        logp, entropy = self.networks.log_probability(out, action)
        change = logp - old
        ratio = change.exp()
        clipped = ratio.clamp(1 - h.clip_param, 1 + h.clip_param)
        policy_loss = -torch.minimum(advantage * ratio, advantage * clipped).mean()
        if h.value_clip is None:
            value_loss = torch.nn.functional.mse_loss(value, target)
        else:
            bounded = before + (value - before).clamp(-h.value_clip, h.value_clip)
            worse = torch.maximum((value - target).square(), (bounded - target).square())
            value_loss = worse.mean()
        loss = policy_loss + h.vf_coef * value_loss
        if h.ent_coef:
            loss = loss - h.ent_coef * entropy
        return loss, (policy_loss, value_loss, entropy, change, ratio, clipped)

    def state(self) -> State:
        """Everything that is learned, the order of minibatches and what moves the learning rate."""
        random = random_state(self._random)
        rate = {"factor": self._lr_factor, "kl": self._kl}
        return {**super().state(), "random": random, "rate": rate}

    def restore(self, state: State) -> None:
        """Learns on where another stopped."""
        super().restore(state)
        restore_random(self._random, state["random"])
        rate = state.get("rate", {"factor": 1.0, "kl": 0.0})
        self._lr_factor, self._kl = rate["factor"], rate["kl"]


def _normalisers(task: Task) -> tuple[Normaliser | None, Normaliser | None]:
    """Of inputs and of returns, where they are asked for."""
    h: PPOHyp = task.hyp
    inputs = Normaliser.of_inputs(task.env) if h.normalise_obs else None
    returns = Normaliser(()) if h.normalise_reward or h.normalise_value else None
    return inputs, returns
