"""PPO: synchronous, or asynchronous with a bound on the policy lag and a correction for it.

PPO-EWMA (Hilton et al. 2021) is that correction. What is clipped is the change against a moving
average of the policies of the last steps, whoever acted; and an old sample counts by how much
likelier that policy makes it than the one that drew it:

    min(w, weight_cap) min(u A, clip(u, 1-e, 1+e) A),  u = pi / pi_mean,  w = pi_mean / pi_acted

Without it the clip starts from the policy that acted, and drift uses up what may be learned.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tianji.algorithms.base import FallingRate, equal_share
from tianji.algorithms.drift import Drift, KLRate
from tianji.algorithms.on_policy import OnPolicy
from tianji.algorithms.scales import Scales
from tianji.algorithms.surrogate import Gains, Moments, objective, pooled, surrogate_scalars
from tianji.config.binder import Names, key
from tianji.core.algorithm import Scalars, Task, Weights
from tianji.core.balance import bound_of_lag
from tianji.core.errors import TianJiError
from tianji.core.lazy import torch
from tianji.core.schema import Arrays
from tianji.core.state import State, random_state, restore_random
from tianji.models.layout import Floats
from tianji.models.normaliser import Sums
from tianji.stores.rollouts import Rollouts

if TYPE_CHECKING:
    from tianji.models.flat import Average

CORRECTIONS = Names(
    ("ewma", "none"),
    lost={
        "clip": "version 0.2 had it: write 'ewma' with average_decay=0 and weight_cap=1",
        "vtrace": "only version 0.2 resumes and loads runs with it; for a new one write 'ewma', or "
        "agent.type='IMPALA', which has V-trace",
    },
)


@dataclass(frozen=True)
class PPOHyp(FallingRate):
    """Hyper-parameters of PPO, under the paper's names."""

    lr: float = key(2.5e-3, "learning rate of Adam", above=0)
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
        None,
        "updates after which these statistics stay as they are; default: never",
        at_least=1,
        needs={"normalise_obs or normalise_reward or normalise_value": (True,)},
    )
    normalise_reward: bool = key(False, "rewards over the running deviation of the returns")
    normalise_value: bool = key(False, "value targets by the running mean and deviation of returns")
    value_clip: float | None = key(
        None, "largest change of a value that is still learned from; None: no limit", above=0
    )
    huber: float | None = key(
        None, "error of a value above which its loss grows in a line; None: squared", above=0
    )
    kl_target: float | None = key(
        None,
        "KL divergence of an update: lr falls where it is twice this, rises where half",
        above=0,
    )
    mode: Literal["sync", "async"] = key(
        "sync",
        "sync: every sample is of the learner's version; async: of at most max_lag before; a pool "
        "larger than a batch (buffer_size) makes both Lag-k, which only async corrects",
    )
    max_lag: int | None = key(
        None,
        "async: versions that a rollout may be behind, older ones are dropped; default: what can "
        "be in flight, actors / batch_size + 1; not with Lag-k",
        at_least=1,
        because='for no lag set hyp.mode="sync", or buffer_cfg.slack=0 and no hyp.batch_size',
        needs={"mode": ("async",)},
    )
    correction: Literal["ewma", "none"] = key(
        "ewma",
        "async: clipped is the change against an average of the last policies, and old samples "
        "weigh by their probability under it; none: plain PPO, as if they were new",
        names=CORRECTIONS,
        needs={"mode": ("async",)},
    )
    average_decay: float = key(
        0.89,
        "ewma: what a step of the optimiser counts less than the next one; 0: the average is the "
        "policy that begins the update (decoupled PPO)",
        at_least=0,
        at_most=1,
        needs={"mode": ("async",), "correction": ("ewma",)},
    )
    weight_cap: float = key(
        5.0,
        "ewma: largest weight of an old sample",
        at_least=1,
        needs={"mode": ("async",), "correction": ("ewma",)},
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
    drift: Drift | None  # of old samples; None: all are of the present policy


class PPO(OnPolicy):
    """Clipped policy gradient on fresh samples (Schulman et al. 2017)."""

    Hyp = PPOHyp
    masks = True
    scalars: ClassVar[tuple[str, ...]] = (
        "policy_gradient_loss",
        "value_loss",
        "entropy_loss",
        "approx_kl",
        "clip_fraction",
        *Drift.SCALARS,
    )

    def __init__(self, task: Task, seed: int, device: str = "cpu") -> None:
        super().__init__(task, seed, device)
        from tianji.models.flat import Average
        from tianji.models.optimisers import Adam

        self.hyp: PPOHyp = task.hyp
        self._make(seed, device)
        self._optimiser = Adam(self._flat, self.hyp.lr, self.hyp.adam_eps)
        self._choose_precision(self.networks.actor, self.hyp.minibatch)
        fresh = self.sampling(task).per_version is not None  # no sample is of an older policy
        self._fresh, self._recomputes = fresh, fresh and not self.networks.exact
        self._average: Average | None = None
        if self.correction(task) is not None:
            self._average = Average(self._flat, self.hyp.average_decay)
        self._random = np.random.default_rng(seed)
        self._rate = KLRate(self.hyp)

    @classmethod
    def alternates(cls, hyp: PPOHyp, n_actors: int) -> bool:
        """In the synchronous mode actors and learner never work at the same time."""
        batch = hyp.batch_size or n_actors
        return hyp.mode == "sync" and (hyp.buffer_size or batch) <= batch

    @classmethod
    def correction(cls, task: Task) -> str | None:
        """By the policy that the clip starts from; synchronous samples need none."""
        h: PPOHyp = task.hyp
        if h.mode == "sync" or h.correction == "none":
            return None
        return "PPO-EWMA" if h.average_decay else "decoupled PPO"

    @classmethod
    def scales(cls, task: Task) -> Scales:
        """What the three `normalise_` keys ask for."""
        h: PPOHyp = task.hyp
        return Scales(task.env, h.normalise_obs, h.normalise_reward, h.normalise_value)

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
            if h.max_lag is not None:
                raise TianJiError(
                    f"hyp.max_lag: with a pool of {pool} rollouts for batches of {batch} (Lag-k) "
                    "nothing is dropped for its age: leave it out, or hyp.buffer_size"
                )
            return Rollouts(batch, pool, rows)
        if h.mode == "async":
            lag = bound_of_lag(h.max_lag, task.n_actors, batch)
            return Rollouts(batch, pool, rows, max_lag=lag)
        share = equal_share(batch, task.n_actors, ", or mode='async'")
        return Rollouts(batch, pool, rows, per_version=share)

    def updates(self, batch: Any) -> Generator[Weights, None, Scalars]:
        """Several epochs of minibatches over one batch of rollouts.

        Several learners normalise advantages over the whole batch, and each of them counts by its
        number of samples; so an update of one minibatch is what one learner would have made. Their
        first vectors hold the sums that the moments follow from, all others are gradients. One
        learner yields nothing: a yield brings the gradient of a GPU to the CPU and back.
        """
        arrays, inputs = batch
        h, measures = self.hyp, None
        samples, sums = self._prepare(arrays, inputs)
        gains = samples.gains
        if self.task.n_learners == 1:
            moments, kl = gains.moments(), self._rate.kl
        else:
            moments, kl, sums = yield from self._pooled(gains, sums)
        self._optimiser.lr = self._rate.next(kl, self._n_updates)
        self._n_updates += 1
        n = sum(each.n for each in moments)
        if not n:
            return dict.fromkeys(self.scalars, 0.0)
        gain = gains.normalised(moments).to(self._device)
        share = len(gain) / n  # of this learner among all; 1 if it is alone
        for _ in range(h.update_step):
            for part in self._minibatches(samples, gain, arrays["valid"].size):
                loss = None
                if len(part[0]):  # of several learners one may have none left
                    loss, measures = self._loss(samples.inputs, *part)
                    loss = loss * share
                yield from self._descend(loss, h.max_grad_norm)
                if self._average is not None:
                    self._average.add()
        self._scales.add(sums)  # only now: who acted saw inputs as they were scaled before
        if measures is None:
            return dict.fromkeys(self.scalars, 0.0)
        measured = surrogate_scalars(*measures)
        self._rate.measured(measured["approx_kl"])
        return measured | Drift.scalars_of(samples.drift)

    def _pooled(
        self, gains: Gains, sums: list[Sums]
    ) -> Generator[Weights, None, tuple[list[Moments], float, list[Sums]]]:
        """The same of all learners' samples."""
        kl, *mean = yield from self._mean_of_all([self._rate.kl, *gains.sums()])
        n = self.task.n_learners
        summed = yield from self._scales.pooled(sums, self._mean_of_all)
        return pooled(mean, n), kl, [each * n for each in summed]

    def _prepare(self, batch: Arrays, inputs: Any) -> tuple[Samples, list[Sums]]:
        """The valid samples with their advantages and targets, and sums for the normalisers."""
        out, value = inputs.through(self.networks, self._recomputes or not self._fresh)
        rows = torch.from_numpy(np.flatnonzero(batch["valid"]))
        chosen = batch["action" if self._discrete else "raw"]
        action = torch.from_numpy(chosen).flatten(0, 2)[rows]
        old = torch.from_numpy(batch["logp"]).flatten()[rows]
        on_device = rows.to(self._device), action.to(self._device)
        now = None
        if out is not None and len(rows):
            with torch.no_grad():
                held = inputs.possible(out[on_device[0]], on_device[0])
                now = self.networks.log_probability(held, on_device[1])[0]
        under = partial(self.networks.log_probability_at, inputs, *on_device)
        old, drift, weights = self._aged(old, now, under)
        final = inputs.final(self.networks)
        advantage, target, returns = self._scales.advantages(
            batch, value, final, self.hyp.gamma, self.hyp.gae_lambda
        )
        gain, goal = (torch.from_numpy(a.ravel())[rows] for a in (advantage, target))
        before = torch.from_numpy(np.ascontiguousarray(value[:, :-1])).flatten()[rows]
        old, before, goal = (tensor.to(self._device) for tensor in (old, before, goal))
        gains, sums = Gains(gain, weights), self._sums(batch, inputs, returns, batch["valid"])
        return Samples(inputs, *on_device, old, before, goal, gains, drift), sums

    def _aged(
        self, old: torch.Tensor, now: torch.Tensor | None, averaged: Callable[[], torch.Tensor]
    ) -> tuple[torch.Tensor, Drift | None, torch.Tensor | None]:
        """Where the clipped ratio starts, how far the policy has gone since, weights of samples.

        All from log-probabilities: `old` when actions were drawn, `now`, and under the average.
        """
        drift = weights = None
        if now is not None and not self._fresh:
            drift = Drift(now.cpu() - old)
        if now is not None and self._recomputes:
            old = now  # an actor may compute less exactly: what it says is not quite ours
        if self._average is not None and len(old):
            with torch.no_grad(), self._average.standing_in():
                mean = averaged()
            weights = Drift(mean.cpu() - old).ratio.clamp(max=self.hyp.weight_cap)
            old = mean
        return old, drift, weights

    def _sums(
        self, batch: Arrays, inputs: Any, returns: Floats, valid: npt.NDArray[np.bool_]
    ) -> list[Sums]:
        """What the normalisers are to learn; nothing once they have learned for long enough."""
        limit = self.hyp.normalise_updates
        if limit is not None and self._n_updates >= limit:
            return []
        seen = None if self._scales.inputs is None else inputs.numpy(batch)
        return self._scales.sums(seen, returns, valid)

    def _minibatches(
        self, samples: Samples, gain: torch.Tensor, n_rows: int
    ) -> Iterator[tuple[torch.Tensor, ...]]:
        """Slices of nearly equal size, in a new order."""
        total = len(samples.rows)
        n = self._n_minibatches(total, n_rows)
        order = torch.from_numpy(self._random.permutation(total)).to(self._device)
        s = samples
        columns = (s.rows, s.action, s.logp, s.value, gain, s.target)
        return zip(*(t[order].tensor_split(n) for t in columns), strict=True)

    def _n_minibatches(self, total: int, n_rows: int) -> int:
        """Several learners have equally many, however many of their rows are valid."""
        n_learners = self.task.n_learners
        n_samples = total if n_learners == 1 else n_rows * n_learners
        return max(1, round(n_samples / self.hyp.minibatch))

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
        """The loss of one minibatch and what it is made of."""
        out, value = self.networks(inputs(rows))
        logp, entropy = self.networks.log_probability(inputs.possible(out, rows), action)
        return objective(self.hyp, logp, entropy, value, old, before, advantage, target)

    def load(self, weights: Weights) -> None:
        """Sets what actors need; an average begins anew."""
        super().load(weights)
        if self._average is not None:
            self._average.restart()

    def shift(self, delta: Weights) -> None:
        """Moves everything that is learned, and its average with it."""
        super().shift(delta)
        if self._average is not None:
            n = len(self._average.vector)
            self._average.vector += torch.from_numpy(delta[:n]).to(self._device)

    def state(self) -> State:
        """Everything that is learned, the order of minibatches and what moves the learning rate."""
        random = random_state(self._random)
        more = {} if self._average is None else {"average": self._average.state()}
        return {**super().state(), "random": random, "rate": self._rate.state(), **more}

    def restore(self, state: State) -> None:
        """Learns on where another stopped."""
        super().restore(state)
        restore_random(self._random, state["random"])
        self._rate.restore(state.get("rate", {"factor": 1.0, "kl": 0.0}))
        if self._average is not None:
            self._average.restart()
            if "average" in state:  # a checkpoint of version 0.2 has none
                self._average.restore(state["average"])
