"""TD3: a deterministic actor, twin critics, delayed; with its switches off it is DDPG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tianji.algorithms.base import vector_actions
from tianji.algorithms.off_policy import OffPolicy, OffPolicyHyp, modules, on, vectors_only
from tianji.config.binder import key
from tianji.core.algorithm import PolicyGraph, Scalars, Task, Weights
from tianji.core.lazy import torch
from tianji.core.schema import Arrays
from tianji.models.layout import Network, network_of
from tianji.models.policies import ActionBounds, SquashedPolicy


@dataclass(frozen=True)
class TD3Hyp(OffPolicyHyp):
    """Hyper-parameters of TD3; noise is in units of half the distance between an action's bounds.

    `twin=False, delay=1, target_noise=0` is DDPG.
    """

    noise: float = key(0.1, "deviation of the noise that actors explore with", at_least=0)
    noise_kept: float = key(
        0.0,
        "correlation of the noise of one step with the next one's: what lasts leads farther",
        at_least=0,
        at_most=1,
    )
    twin: bool = key(True, "two critics, of which the smaller value counts")
    delay: int = key(2, "updates of the critics for each of the actor", at_least=1)
    target_noise: float = key(0.2, "deviation of the noise on the target's actions", at_least=0)
    noise_clip: float = key(0.5, "largest noise on the target's actions", at_least=0)


class ContinuousControl(OffPolicy):
    """One actor that gives a vector of numbers, and critics that read it beside what is seen."""

    scalars: ClassVar[tuple[str, ...]] = ("loss", "q_mean", "target_mean")
    _outputs_per_number: ClassVar[int] = 1  # of the actor

    def _build(self, seed: int, device: str, n_critics: int, *more: torch.nn.Parameter) -> None:
        actors = modules([self.actor_network(self.task)], seed)
        critics = modules([self.critic_network(self.task)] * n_critics, seed, 1)
        self._make(actors, critics, seed, device, more)
        bounds = ActionBounds(self.task.env)
        self._n = len(bounds.scale)
        self._centre, self._inverse = on(device, bounds.centre, bounds.inverse)

    @classmethod
    def actor_network(cls, task: Task) -> Network:
        """What actors have."""
        n = vector_actions(task, cls.__name__) * cls._outputs_per_number
        vectors_only(task, cls.__name__)
        ActionBounds(task.env)
        return network_of(task, n)

    @classmethod
    def critic_network(cls, task: Task) -> Network:
        """What says how much an action is worth."""
        n_inputs = task.env.n_inputs + vector_actions(task, cls.__name__)
        return network_of(task, 1, n_inputs=n_inputs)

    @classmethod
    def n_weights(cls, task: Task) -> int:
        """Weights of the actor."""
        return cls.actor_network(task).n_weights

    @classmethod
    def exported(cls, task: Task, weights: Weights) -> PolicyGraph:
        """The action without noise."""
        from tianji.models.export import exported

        bounds = ActionBounds(task.env)
        centre, scale = on("cpu", bounds.centre, bounds.scale)

        def head(out: torch.Tensor) -> torch.Tensor:
            return centre + scale * torch.tanh(out[:, : len(scale)])

        return exported(cls.actor_network(task), weights, task.env, "mean", head=head)

    def stage(self, batch: Arrays) -> Any:
        """What is learned from, on the device."""
        gather = self.task.env.gather
        used = {name: batch[name] for name in ("action", "reward", "discount")}
        staged = self._stage(used | {"obs": gather(batch), "next_obs": gather(batch, "next_")})
        action = staged["action"].flatten(1)
        return staged | {"action": (action - self._centre) * self._inverse}

    def _q(
        self, critics: torch.nn.ModuleList, obs: torch.Tensor, action: torch.Tensor
    ) -> torch.Tensor:
        """What each critic says, [critics, B]."""
        inputs = torch.cat([obs.flatten(1).float(), action], 1)
        return torch.stack([critic(inputs).squeeze(1) for critic in critics])


class TD3(ContinuousControl):
    """Twin delayed deterministic policy gradient (Fujimoto et al. 2018)."""

    Hyp = TD3Hyp

    def __init__(self, task: Task, seed: int, device: str = "cpu") -> None:
        super().__init__(task, seed, device)
        self.hyp: TD3Hyp = task.hyp
        self._delay = self.hyp.delay
        self._build(seed, device, 1 + self.hyp.twin)

    @classmethod
    def n_parameters(cls, task: Task) -> int:
        """Those of the critics too."""
        n_critics = 1 + int(task.hyp.twin)
        return cls.n_weights(task) + n_critics * cls.critic_network(task).n_weights

    @classmethod
    def policy(cls, task: Task, actor: int, seed: int) -> SquashedPolicy:
        """The actor, and noise of one size."""
        network, h, random_until = cls.actor_network(task), task.hyp, cls.random_steps(task)
        return SquashedPolicy(task, network, seed, h.noise, random_until, h.noise_kept)

    def _critic_loss(self, batch: Any) -> tuple[Any, Any, Any]:
        h, after = self.hyp, batch["next_obs"]
        with torch.no_grad():
            action = torch.tanh(self.target_actors[0](after))
            if h.target_noise:
                noise = self._noise(*action.shape) * h.target_noise
                action = (action + noise.clamp(-h.noise_clip, h.noise_clip)).clamp(-1, 1)
            value = self._q(self.target_critics, after, action).amin(0)
            goal = batch["reward"] + batch["discount"] * value
        q = self._q(self.critics, batch["obs"], batch["action"])
        return (q - goal).square().mean(1).sum(), q.detach(), goal

    def _actor_loss(self, batch: Any) -> tuple[Any, Scalars]:
        action = torch.tanh(self.actors[0](batch["obs"]))
        return -self._q(self.critics[:1], batch["obs"], action).mean(), {}
