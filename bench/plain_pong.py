"""PPO on Atari's Pong in one process and one loop: the floor that machinery has to beat on pixels.

Two recipes of configs/atari/: `laptop` is that of pong_laptop.py, `gpu` that of fast_pong.py.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from typing import Any, NamedTuple

import numpy as np
import torch
from ale_py.vector_env import AtariVectorEnv
from clock import print_result
from options import Options, at_least, count, number, positive, whole
from torch import Tensor, nn


class Recipe(NamedTuple):
    """What differs between two cores and a GPU."""

    envs: int
    steps: int
    minibatch: int
    epochs: int
    lr: float
    size: int  # pixels of a side
    convs: tuple[tuple[int, int, int], ...]  # channels, kernel, stride
    dense: int
    centred: bool  # minus the mean picture, over four deviations


RECIPES = {
    "laptop": Recipe(32, 64, 256, 3, 7e-4, 42, ((16, 4, 2), (32, 4, 2), (32, 3, 2)), 256, True),
    "gpu": Recipe(128, 32, 1024, 4, 1e-3, 84, ((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512, False),
}
GAMMA, LAMBDA, CLIP, ENTROPY, VALUE, NORM = 0.99, 0.95, 0.1, 0.01, 0.5, 0.5


class Net(nn.Module):
    """Logits and, as the last output, the value of stacks [B, 4, size, size]."""

    def __init__(self, r: Recipe, n_actions: int, bf16: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels, side = 4, r.size
        for out, kernel, stride in r.convs:
            layers += [nn.Conv2d(channels, out, kernel, stride), nn.ReLU()]
            channels, side = out, (side - kernel) // stride + 1
        layers += [nn.Flatten(), nn.Linear(channels * side * side, r.dense)]
        self.body = nn.Sequential(*layers, nn.LayerNorm(r.dense), nn.ReLU())
        self.head, self.bf16 = nn.Linear(r.dense, n_actions + 1), bf16
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.orthogonal_(layer.weight, 2**0.5 if layer is not self.head else 1.0)
                nn.init.zeros_(layer.bias)
        self.head.weight.data[:-1] *= 0.01
        self.register_buffer("mean", torch.zeros(r.size, r.size))
        self.register_buffer("scale", torch.tensor(1 / 255))

    def forward(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        x = (frames.to(memory_format=torch.channels_last) - self.mean) * self.scale
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.bf16):
            x = self.body(x)
        out = self.head(x.float())
        return out[:, :-1], out[:, -1]


class Loop:
    """Two halves of the games: one moves while the network looks at the other."""

    def __init__(self, o: argparse.Namespace, r: Recipe, bf16: bool) -> None:
        T, E, d = r.steps, r.envs, o.device
        self.o, self.r, self.half = o, r, E // 2
        size, full = dict(img_height=r.size, img_width=r.size), r.centred
        self.envs = [
            AtariVectorEnv("pong", E // 2, num_threads=o.threads, full_action_space=full,
                           use_fire_reset=False, reward_clipping=False, **size)
            for _ in range(2)
        ]  # fmt: skip
        n_actions = int(self.envs[0].single_action_space.n)
        self.net = Net(r, n_actions, bf16).to(d).to(memory_format=torch.channels_last)
        self.adam = torch.optim.Adam(self.net.parameters(), lr=r.lr, eps=1e-5, fused=True)
        self.obs = torch.zeros(T + 1, E, 4, r.size, r.size, dtype=torch.uint8, device=d)
        self.action = torch.zeros(T, E, dtype=torch.int64, device=d)
        self.logp, self.value = (torch.zeros(T + 1, E, device=d) for _ in range(2))
        self.reward = np.zeros((T, E), np.float32)
        self.done, self.valid = (np.zeros((T, E), bool) for _ in range(2))
        self.ended, self.running = np.zeros(E, bool), np.zeros(E)
        self.returns, self.env_steps, self.updates = deque[float](maxlen=100), 0, 0
        for i, env in enumerate(self.envs):
            self.obs[T, self.rows(i)] = torch.from_numpy(env.reset(seed=o.seed + i * E)[0]).to(d)

    def rows(self, half: int) -> slice:
        return slice(half * self.half, (half + 1) * self.half)

    @property
    def mean_return(self) -> float:
        return sum(self.returns) / max(1, len(self.returns))

    @property
    def solved(self) -> bool:
        """True only after a hundred games, however good the first ones are."""
        return len(self.returns) == 100 and self.mean_return >= self.o.target

    @torch.no_grad()
    def collect(self) -> None:
        """Fills the arrays with one rollout."""
        self.obs[0] = self.obs[-1]
        for t in range(self.r.steps):
            for half in (0, 1):
                if t:
                    self.receive(half, t - 1)
                self.act(half, t)
        for half in (0, 1):
            self.receive(half, self.r.steps - 1)
        self.value[-1] = self.net(self.obs[-1])[1]

    def act(self, half: int, t: int) -> None:
        rows = self.rows(half)
        logits, self.value[t, rows] = self.net(self.obs[t, rows])
        logp = logits.log_softmax(1)
        noise = -torch.empty_like(logp).exponential_().log()  # a softmax sample
        action = (logp + noise).argmax(1)
        self.action[t, rows] = action
        self.logp[t, rows] = logp.gather(1, action[:, None]).squeeze(1)
        self.valid[t, rows] = ~self.ended[rows]  # the step after an end only resets
        self.envs[half].send(action.cpu().numpy())

    def receive(self, half: int, t: int) -> None:
        rows = self.rows(half)
        frames, reward, terminated, truncated, _ = self.envs[half].recv()
        self.obs[t + 1, rows] = torch.from_numpy(frames).to(self.o.device)
        self.reward[t, rows] = reward
        self.ended[rows] = self.done[t, rows] = terminated | truncated
        self.running[rows] += reward
        self.env_steps += int(self.valid[t, rows].sum())
        over = np.flatnonzero(self.ended[rows]) + rows.start
        self.returns.extend(self.running[over].tolist())
        self.running[over] = 0.0

    def centre(self) -> None:
        """Freezes what inputs are normalised with: of the newest frames of this rollout."""
        frames = self.obs[:, :, -1].flatten(0, 1).float()
        self.net.mean.copy_(frames.mean(0))
        self.net.scale.copy_(1 / (4 * (frames - self.net.mean).square().mean().sqrt()))

    def learn(self) -> None:
        """Makes advantages (GAE) of the rollout and descends `epochs` times over its valid rows."""
        r, v = self.r, self.value.cpu().numpy()
        gain = np.sign(self.reward) + GAMMA * ~self.done * v[1:] - v[:-1]
        for t in reversed(range(r.steps - 1)):
            gain[t] += GAMMA * LAMBDA * ~self.done[t] * self.valid[t + 1] * gain[t + 1]
        rows = torch.from_numpy(np.flatnonzero(self.valid)).to(self.o.device)
        advantage, target = (torch.from_numpy(a.astype(np.float32)) for a in (gain, gain + v[:-1]))
        columns = self.obs[:-1], self.action, self.logp[:-1], advantage, target
        columns = tuple(c.to(self.o.device).flatten(0, 1) for c in columns)
        n = max(1, round(len(rows) / r.minibatch))
        for _ in range(r.epochs):
            order = rows[torch.randperm(len(rows), device=rows.device)]
            for part in order.tensor_split(n):
                self.descend(*(c[part] for c in columns))
        self.updates += 1

    def descend(self, x: Tensor, u: Tensor, old: Tensor, advantage: Tensor, target: Tensor) -> None:
        """One Adam step on the clipped surrogate, the value error and the entropy."""
        logits, value = self.net(x)
        logs = logits.log_softmax(1)
        entropy = -(logs.exp() * logs).sum(1).mean()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = (logs.gather(1, u[:, None]).squeeze(1) - old).exp()
        gain = torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
        loss = VALUE * (value - target).square().mean() - gain - ENTROPY * entropy
        self.adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), NORM)
        self.adam.step()


def options() -> Options:
    parser = Options(__doc__)
    parser.add_argument("--recipe", choices=RECIPES, default="laptop")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=count, default=2, help="of torch and of the games")
    parser.add_argument("--envs", type=at_least(2), help="games, instead of the recipe's")
    parser.add_argument("--target", type=number, default=18.0, help="mean of the last 100 games")
    parser.add_argument("--seed", type=whole, default=0)
    parser.add_argument("--max-seconds", type=positive, default=600.0)
    return parser


def main() -> None:
    o: Any = options().parse_args()
    recipe = RECIPES[o.recipe]
    if o.envs:
        recipe = recipe._replace(envs=o.envs - o.envs % 2)
    torch.set_num_threads(o.threads)
    torch.manual_seed(o.seed)
    bf16 = o.device == "cuda" or torch.cpu._is_avx512_bf16_supported()
    loop, began = Loop(o, recipe, bf16), time.perf_counter()
    loop.collect()
    if recipe.centred:  # nothing is learned from what was seen otherwise
        loop.centre()
        loop.collect()
    while not loop.solved and time.perf_counter() - began < o.max_seconds:
        loop.learn()
        loop.collect()
    about = {"cpu_seconds": round(time.process_time(), 1), "bf16": bf16, "updates": loop.updates}
    about["mean_return"] = round(loop.mean_return, 2)
    print_result("plain", loop.solved, began, loop.env_steps, o, **about)


if __name__ == "__main__":
    main()
