"""PPO in one process and one loop: the honest floor that machinery has to beat on a small task."""

from __future__ import annotations

import argparse
import time
from collections import deque
from typing import Any

import gymnasium
import numpy as np
import torch
from clock import print_result
from options import Options, count, number, number_from, positive, whole
from torch import Tensor, nn

DEFAULTS: dict[str, Any] = dict(
    envs=32, steps=64, minibatch=512, epochs=4, lr=2.5e-3, hidden=64, adam_eps=1e-8, gamma=0.99,
    gae_lambda=0.95, clip=0.2, value_coef=0.5, max_grad_norm=0.5, target=300.0, seed=0, threads=1,
    max_seconds=600.0,
)  # fmt: skip
ZERO = number_from(0)
KINDS: dict[str, Any] = {"seed": whole, "target": number, "gae_lambda": ZERO, "value_coef": ZERO}


def mlp(hidden: int, outputs: int, last_gain: float) -> nn.Sequential:
    layers = [nn.Linear(4, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, outputs)]
    for layer, gain in zip(layers, (2**0.5, 2**0.5, last_gain), strict=True):
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


class Loop:
    """Collects `steps` from every environment, learns from them, and does so again."""

    def __init__(self, o: argparse.Namespace) -> None:
        T, E = o.steps, o.envs
        self.o, self.rng = o, np.random.default_rng(o.seed)
        self.env = gymnasium.make_vec(
            "CartPole-v1", num_envs=E, vectorization_mode="vector_entry_point"
        )
        self.policy, self.value = mlp(o.hidden, 2, 0.01), mlp(o.hidden, 1, 1.0)
        self.parameters = [*self.policy.parameters(), *self.value.parameters()]
        self.adam = torch.optim.Adam(self.parameters, lr=o.lr, eps=o.adam_eps, fused=True)
        self.obs, self.action = np.zeros((T + 1, E, 4), np.float32), np.zeros((T, E), np.int64)
        self.reward = np.zeros((T, E), np.float32)
        self.terminated, self.done, self.valid = (np.zeros((T, E), bool) for _ in range(3))
        self.obs[T] = self.env.reset(seed=o.seed)[0]
        self.ended, self.running = np.zeros(E, bool), np.zeros(E)
        self.returns, self.env_steps = deque[float](maxlen=100), 0

    @property
    def solved(self) -> bool:
        """True only after a hundred episodes, however good the first ones are."""
        return len(self.returns) == 100 and sum(self.returns) / 100 >= self.o.target

    def collect(self) -> None:
        """Fills the arrays with one rollout, or less once the target is reached."""
        self.obs[0] = self.obs[-1]
        gumbel = self.rng.gumbel(size=(self.o.steps, self.o.envs, 2)).astype(np.float32)
        for t in range(self.o.steps):
            with torch.no_grad():
                logits = self.policy(torch.from_numpy(self.obs[t])).numpy()
            self.action[t] = (logits + gumbel[t]).argmax(1)  # a softmax sample
            self.valid[t] = ~self.ended  # the step after an end only resets: its action is ignored
            step = self.env.step(self.action[t])
            self.obs[t + 1], self.reward[t], self.terminated[t], truncated, _ = step
            self.done[t] = self.ended = self.terminated[t] | truncated
            self.env_steps += int(self.valid[t].sum())
            self.running += self.reward[t]
            if self.ended.any():
                self.returns.extend(self.running[self.ended].tolist())
                self.running[self.ended] = 0.0
                if self.solved:
                    return

    def learn(self) -> None:
        """Makes advantages (GAE) of the rollout and descends `epochs` times over its valid rows."""
        o, obs, action = self.o, torch.from_numpy(self.obs), torch.from_numpy(self.action)
        with torch.no_grad():
            v = self.value(obs).squeeze(-1).numpy()
            old = self.policy(obs[:-1]).log_softmax(-1).gather(-1, action[..., None]).squeeze(-1)
        # obs[t + 1] is still the final observation where t ended: truncation bootstraps from it
        delta = self.reward + np.float32(o.gamma) * ~self.terminated * v[1:] - v[:-1]
        decay = np.float32(o.gamma * o.gae_lambda) * ~self.done
        for t in reversed(range(o.steps - 1)):
            delta[t] += decay[t] * delta[t + 1]  # from delta to advantage, in place
        rows = torch.from_numpy(np.flatnonzero(self.valid))
        columns = (obs[:-1], action, old, torch.from_numpy(delta), torch.from_numpy(delta + v[:-1]))
        x, u, old, advantage, target = (c.flatten(0, 1)[rows] for c in columns)
        for _ in range(o.epochs):
            order = torch.from_numpy(self.rng.permutation(len(rows)))
            for i in torch.split(order, o.minibatch):
                self.descend(x[i], u[i], old[i], advantage[i], target[i])

    def descend(self, x: Tensor, u: Tensor, old: Tensor, advantage: Tensor, target: Tensor) -> None:
        """One Adam step on the clipped surrogate plus the value error."""
        logp = self.policy(x).log_softmax(-1).gather(1, u[:, None]).squeeze(1)
        advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
        ratio, clip = (logp - old).exp(), self.o.clip
        gain = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
        error = (self.value(x).squeeze(1) - target).square().mean()
        self.adam.zero_grad()
        (self.o.value_coef * error - gain).backward()
        nn.utils.clip_grad_norm_(self.parameters, self.o.max_grad_norm)
        self.adam.step()


def main() -> None:
    parser = Options(__doc__)
    for name, default in DEFAULTS.items():
        kind = KINDS.get(name, count if isinstance(default, int) else positive)
        parser.add_argument("--" + name.replace("_", "-"), type=kind, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    loop, began = Loop(options), time.perf_counter()
    loop.collect()
    while not loop.solved and time.perf_counter() - began < options.max_seconds:
        loop.learn()
        loop.collect()
    print_result("plain", loop.solved, began, loop.env_steps, options)


if __name__ == "__main__":
    main()
