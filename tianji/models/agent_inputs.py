"""From batches of rollouts of several agents to what networks read: steps, or sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from tianji.core.env import EnvSpec
from tianji.core.frames import FIRST, MEMORY
from tianji.core.schema import Arrays
from tianji.models.layout import Floats
from tianji.models.staging import Stage

if TYPE_CHECKING:
    from tianji.models.agent_actor_critic import AgentsActorCritic

CHUNK = 8_192  # steps that pass through a network at once, where no gradient is wanted

Fields = dict[str, torch.Tensor]


class AgentsInputs:
    """The observations of a batch [n, T+1, E, ...] as R rows [R, L, ...] to learn from.

    Agents that remember learn from sequences, L = T; others from single steps, L = 1, of which
    those are left out in which nobody acts.
    """

    def __init__(self, env: EnvSpec, batch: Arrays, stage: Stage, n_values: int) -> None:
        names = [name for name in ("obs", "mask", "state", FIRST) if name in batch]
        self._remembers = MEMORY in batch
        staged = stage({name: batch[name] for name in names})
        self._all = {name: self._rows_of(array) for name, array in staged.items()}
        acted = {name: self._rows_of(array[:, :-1]) for name, array in staged.items()}
        self._memory: Fields = {}
        if self._remembers:
            memory = stage({MEMORY: batch[MEMORY]})[MEMORY]
            self._memory = {MEMORY: memory.flatten(0, 1)}
        self._shape, self._n_values = batch["valid"].shape, n_values
        n, length, n_envs = self._shape
        alive = batch.get("alive", np.ones((n, length + 1, n_envs, len(env.agents)), np.bool_))
        takes_part = self._rows_of(torch.from_numpy(batch["valid"][..., None] & alive[:, :-1]))
        self._chosen = takes_part.flatten(1).any(1).nonzero()[:, 0]  # rows in which anybody acts
        self.acts = takes_part[self._chosen]  # [R, L, A], in the CPU's memory
        device = staged["obs"].device
        self._acts, chosen = self.acts.to(device), self._chosen.to(device)
        self.told = self._told(batch, env.ends_alone)
        self._valued = self.steps(self.told["valid"]).to(device)
        everyone = len(chosen) == len(acted["obs"])
        seen = acted | self._memory
        self._seen = seen if everyone else {name: array[chosen] for name, array in seen.items()}
        self.rows = torch.arange(len(chosen), device=device)

    def __call__(self, rows: torch.Tensor) -> Fields:
        """What these rows show to the networks."""
        return {name: array[rows] for name, array in self._seen.items()}

    def acting(self, rows: torch.Tensor) -> torch.Tensor:
        """Who acts in these rows [B, L, A]."""
        return self._acts[rows]

    def valued(self, rows: torch.Tensor) -> torch.Tensor:
        """Which values of these rows [B, L, C] are learned."""
        return self._valued[rows]

    def steps(self, array: npt.NDArray[Any]) -> torch.Tensor:
        """Rows [R, L, ...] of what is there for every step [n, T, E, ...]."""
        return self._rows_of(torch.from_numpy(np.ascontiguousarray(array)))[self._chosen]

    def spread(self, values: torch.Tensor) -> torch.Tensor:
        """What is there for all that act [N], as rows [R, L, A]; zeros elsewhere."""
        rows = values.new_zeros(self._acts.shape)
        rows[self._acts] = values
        return rows

    def _told(self, batch: Arrays, ends_alone: bool) -> Arrays:
        """Rewards and ends [n, T, E, C] of what each of C values is of.

        Whoever has rewards of its own gains nothing more once it does not take part. A team's goes
        on.
        """
        names = ("reward", "terminated", "truncated", "valid")
        told = {name: batch[name] for name in names}
        for name, array in told.items():
            if array.ndim == 3:
                told[name] = array[..., None].repeat(self._n_values, -1)
        if ends_alone and "alive" in batch:
            alive, after = batch["alive"][:, :-1], batch["alive"][:, 1:]
            told["terminated"] |= ~after
            told["truncated"] &= after
            told["valid"] &= alive
        return told

    @torch.no_grad()
    def through(
        self, networks: AgentsActorCritic, with_policy: bool
    ) -> tuple[torch.Tensor | None, Floats]:
        """The policies' outputs [R, L, A, n], if wanted, and the values [n, T+1, E, C]."""
        seen = self._all | self._memory
        total = len(seen["obs"])
        n_parts = -(-total * seen["obs"].shape[1] // CHUNK)
        outs, values = [], []
        for rows in self.rows.new_tensor(range(total)).tensor_split(n_parts):
            out, value = networks({name: array[rows] for name, array in seen.items()})
            values.append(value)
            if with_policy:
                outs.append(out)
        found: Floats = self._steps_of(torch.cat(values)).cpu().numpy()
        if not with_policy:
            return None, found
        steps = self._steps_of(torch.cat(outs))[:, :-1]
        return self._rows_of(steps)[self._chosen.to(steps.device)], found

    def policy(self, networks: AgentsActorCritic) -> torch.Tensor:
        """The policies' outputs [R, L, A, n], not too many at once."""
        n_parts = -(-len(self.rows) * self.acts.shape[1] // CHUNK)
        return torch.cat([networks(self(rows))[0] for rows in self.rows.tensor_split(n_parts)])

    def _rows_of(self, steps: torch.Tensor) -> torch.Tensor:
        """[n, t, E, ...] as sequences [n * E, t, ...], or as steps [n * t * E, 1, ...]."""
        if self._remembers:
            return steps.transpose(1, 2).flatten(0, 1)
        return steps.flatten(0, 2)[:, None]

    def _steps_of(self, rows: torch.Tensor) -> torch.Tensor:
        """The inverse, of what is there for T+1 rows."""
        n, length, n_envs = self._shape
        if self._remembers:
            return rows.view(n, n_envs, length + 1, *rows.shape[2:]).transpose(1, 2)
        return rows.view(n, length + 1, n_envs, *rows.shape[2:])
