"""DQN on Atari's Pong in one process and one loop, its replay on the device: a floor for `gpu.py`.

The recipe of configs/atari/fast_dqn_pong.py: double, dueling, 3-step, eight samples learned from
for each that is made. Games move while the network learns. Updates are not put into a CUDA graph.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import numpy as np
import torch
from ale_py.vector_env import AtariVectorEnv
from clock import print_result
from options import Options, at_least, count, number, positive, whole
from torch import Tensor, nn

GAMMA, STEPS, RATIO, SIZE = 0.99, 3, 8, 84
TARGET_EVERY, EPSILON, DECAY = 200, 0.01, 100_000


class Net(nn.Module):
    """Values of all actions for stacks [B, 4, 84, 84]."""

    def __init__(self, n_actions: int, bf16: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512),
            nn.LayerNorm(512), nn.ReLU(),
        )  # fmt: skip
        self.head, self.bf16 = nn.Linear(512, n_actions + 1), bf16

    def forward(self, frames: Tensor) -> Tensor:
        with torch.autocast(frames.device.type, torch.bfloat16, enabled=self.bf16):
            x = self.body(frames.contiguous(memory_format=torch.channels_last) / 255)
        out = self.head(x.float())
        return out[:, -1:] + out[:, :-1] - out[:, :-1].mean(1, keepdim=True)


class Replay:
    """Single frames and what was done at them, [T, E]; stacks are put together when drawn."""

    def __init__(self, rows: int, envs: int, device: str) -> None:
        self.rows, self.envs, self.device, self.n = rows, envs, device, 0
        self.frames = torch.zeros(rows, envs, SIZE, SIZE, dtype=torch.uint8, device=device)
        self.action = torch.zeros(rows, envs, dtype=torch.int64, device=device)
        self.reward = torch.zeros(rows, envs, device=device)
        self.done = torch.zeros(rows, envs, dtype=torch.bool, device=device)
        self.valid = torch.zeros(rows, envs, dtype=torch.bool, device=device)

    def add(self, frame: Tensor, action: Tensor, **rest: Any) -> None:
        """One row of every game."""
        t, self.n = self.n % self.rows, self.n + 1
        self.frames[t], self.action[t] = frame, action
        for name, array in rest.items():
            getattr(self, name)[t] = torch.from_numpy(array).to(self.device)

    def stack(self, t: Tensor, e: Tensor) -> Tensor:
        """The four newest frames; black where the game had not begun."""
        whole, found = torch.ones_like(t, dtype=torch.bool), [self.frames[t % self.rows, e]]
        for back in (1, 2, 3):
            whole = whole & self.valid[(t - back) % self.rows, e]
            found.insert(0, self.frames[(t - back) % self.rows, e] * whole[:, None, None])
        return torch.stack(found, 1)

    def draw(self, n: int) -> tuple[Tensor, ...]:
        """Stacks, actions, returns of three steps, discounts, stacks then, and what counts."""
        oldest = max(0, self.n - self.rows)
        t = torch.randint(oldest + 3, self.n - STEPS, (n,), device=self.device)
        e = torch.randint(self.envs, (n,), device=self.device)
        gain, discount = torch.zeros(n, device=self.device), torch.ones(n, device=self.device)
        for k in range(STEPS):
            gain = gain + discount * self.reward[(t + k) % self.rows, e]
            discount = discount * GAMMA * ~self.done[(t + k) % self.rows, e]
        at = t % self.rows, e
        then = self.stack(t + STEPS, e)
        return self.stack(t, e), self.action[at], gain, discount, then, self.valid[at]


class Learner:
    """The networks and their optimiser."""

    def __init__(self, n_actions: int, device: str, bf16: bool) -> None:
        self.online, self.target = (Net(n_actions, bf16).to(device) for _ in range(2))
        self.target.load_state_dict(self.online.state_dict())
        adam = torch.optim.Adam(self.online.parameters(), lr=1.5e-4, eps=1.5e-4, fused=True)
        self.adam, self.updates = adam, 0

    def learn(
        self, x: Tensor, u: Tensor, gain: Tensor, discount: Tensor, then: Tensor, valid: Tensor
    ) -> None:
        """One step of Adam on the Huber loss."""
        with torch.no_grad():
            best = self.online(then).argmax(1, keepdim=True)
            goal = gain + discount * self.target(then).gather(1, best).squeeze(1)
        q = self.online(x).gather(1, u[:, None]).squeeze(1)
        loss = (nn.functional.smooth_l1_loss(q, goal, reduction="none") * valid).mean()
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        self.updates += 1
        if self.updates % TARGET_EVERY == 0:
            self.target.load_state_dict(self.online.state_dict())


def options() -> Options:
    parser = Options(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=count, default=2, help="of torch and of the games")
    parser.add_argument("--envs", type=at_least(2), default=64, help="games")
    parser.add_argument("--small", action="store_true", help="small batches and replay")
    parser.add_argument("--target", type=number, default=18.0, help="mean of the last 100 games")
    parser.add_argument("--seed", type=whole, default=0)
    parser.add_argument("--max-seconds", type=positive, default=600.0)
    return parser


def main() -> None:
    o: Any = options().parse_args()
    torch.set_num_threads(o.threads)
    torch.manual_seed(o.seed)
    size, start, batch = (4_000, 200, 16) if o.small else (400_000, 20_000, 256)
    env = AtariVectorEnv("pong", o.envs, num_threads=o.threads, use_fire_reset=False)
    n_actions = int(env.single_action_space.n)
    bf16 = o.device == "cuda" or torch.cpu._is_avx512_bf16_supported()
    learner = Learner(n_actions, o.device, bf16)
    replay = Replay(size // o.envs, o.envs, o.device)
    returns, running, steps, owed = deque[float](maxlen=100), np.zeros(o.envs), 0, 0.0
    stacks, ended = env.reset(seed=o.seed)[0], np.zeros(o.envs, bool)
    solved, began = False, time.perf_counter()
    while not solved and time.perf_counter() - began < o.max_seconds:
        seen = torch.from_numpy(stacks).to(o.device)
        epsilon = max(EPSILON, 1 - (1 - EPSILON) * steps / DECAY) if steps > start else 1.0
        with torch.no_grad():
            action = learner.online(seen).argmax(1)
        wild = torch.rand(o.envs, device=o.device) < epsilon
        action = torch.where(wild, torch.randint_like(action, n_actions), action)
        env.send(action.cpu().numpy())
        while owed >= batch:  # while the games move
            learner.learn(*replay.draw(batch))
            owed -= batch
        stacks, reward, terminated, truncated, _ = env.recv()
        valid, ended = ~ended, terminated | truncated  # the step after an end only resets
        rest = {"reward": np.sign(reward).astype(np.float32), "done": ended, "valid": valid}
        replay.add(seen[:, -1], action, **rest)
        steps, running = steps + int(valid.sum()), running + reward
        owed += RATIO * int(valid.sum()) * (steps > start)
        returns.extend(running[ended].tolist())
        running[ended] = 0.0
        mean = sum(returns) / max(1, len(returns))
        solved = len(returns) == 100 and mean >= o.target
    about = {"updates": learner.updates, "mean_return": round(mean, 2), "bf16": bf16}
    print_result("plain_dqn", solved, began, steps, o, **about)


if __name__ == "__main__":
    main()
