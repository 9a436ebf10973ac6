"""The checks of `gpu.py` that need no training run: same numbers as on the CPU, and speeds."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from options import BENCH

from tianji.config import load
from tianji.core.env import EnvSpec
from tianji.core.schema import Arrays, Field
from tianji.job import serial
from tianji.job.factory import make_env
from tianji.job.job import Job, prepare
from tianji.models.device_frames import observed
from tianji.roles.role_specs import Kind

Row = dict[str, Any]

N_UPDATES = 12  # that are compared
NEAR = 0.05  # largest distance of the weights, over how far they moved
NEAR_LOSS = 1e-3
NEAR_GRAPH = 1e-4
GAME = EnvSpec(
    observations=(Field("obs", "uint8", (84, 84)),),
    action=Field("action", "int64", ()),
    choices=(6,),
    stack=4,
)
PPO = ("agent.type='PPO'", "hyp.step_len=16", "hyp.minibatch=64", "hyp.lr=1e-3")
IMPALA = ("agent.type='IMPALA'", "hyp.step_len=16", "hyp.lr=1e-3")
PQN = ("agent.type='PQN'", "hyp.step_len=16", "hyp.minibatch=64", "hyp.lr=1e-3")
DQN = ("agent.type='DQN'", "hyp.warmup_size=128", "hyp.max_decay_step=100")
SPARSE = (
    "global_cfg.replay_ratio=0.2",
    "hyp.batch_size=32",
    "hyp.n_step=3",
    "hyp.buffer_size=1024",
)
MLP = ("model.type='MLP'", "model.convs=None", "model.hidden=[64]", "environment.type='GymEnv'")
CARTPOLE = (*MLP, "environment.gym_name='CartPole-v1'", "environment.kwargs={}")
CASES: dict[str, tuple[str, ...]] = {
    "DQN, MLP": (*DQN, *SPARSE, *CARTPOLE),
    "DQN, CNN": (*DQN, *SPARSE, "model.dueling=True"),
    "DQN, prioritised": (*DQN, *SPARSE, "hyp.prioritised=True"),
    "DQN, C51": (*DQN, *SPARSE, "hyp.distribution='c51'"),
    "PPO, MLP": (*PPO, *CARTPOLE),
    "PPO, CNN": PPO,
    "PPO, normalised": (*PPO, "hyp.normalise_obs=True", "hyp.normalise_value=True"),
    "IMPALA, CNN": IMPALA,
    "PQN, CNN": PQN,
}


def row(what: str, value: float, unit: str, ok: bool | None = None) -> Row:
    """One line of the table; `ok` is None where nothing is asked."""
    return {"what": what, "value": value, "unit": unit, "ok": ok}


def job_of(overrides: tuple[str, ...]) -> Job:
    """The small task with these overrides."""
    config = load(BENCH / "jobs" / "catch.py", overrides)
    env = make_env(config)
    env.close()
    return prepare(config, env.spec)


class Trace:
    """Batches, losses and what was drawn, of serial training on a device."""

    def __init__(self, job: Job, device: str, most: int = N_UPDATES) -> None:
        self.batches: list[Arrays] = []
        self.losses: list[float] = []
        self.drawn: list[tuple[torch.Tensor, ...]] = []
        trace, kind = self, job.algorithm

        class Recorded(kind):  # type: ignore[misc, valid-type]  # a class that a config names
            """The job's algorithm; it keeps what it is given."""

            def __init__(self, task: Any, seed: int) -> None:
                super().__init__(task, seed, device)

            def stage(self, batch: Arrays) -> Any:
                if len(trace.batches) < most:
                    trace.batches.append({name: array.copy() for name, array in batch.items()})
                    if "discount" in batch:
                        both = observed(batch, job.task.env, "cpu")
                        trace.drawn.append(tuple(each.cpu().clone() for each in both))
                return super().stage(batch)

            def learn(self, batch: Any) -> Any:
                scalars = super().learn(batch)
                trace.losses.append(float(scalars[kind.scalars[0]]))
                return scalars

        self.first = job.algorithm(job.task, job.seed(Kind.LEARNER)).parameters().copy()
        serial.train(dataclasses.replace(job, algorithm=Recorded))


def replayed(job: Job, device: str, batches: list[Arrays], ahead: int) -> tuple[Any, list[float]]:
    """Parameters and losses after these batches; `ahead` of them are staged before their turn."""
    algorithm = job.algorithm(job.task, job.seed(Kind.LEARNER), device)
    name, staged, losses = algorithm.scalars[0], [], []
    for i in range(len(batches)):
        while len(staged) < min(len(batches), i + 1 + ahead):
            staged.append(algorithm.stage(batches[len(staged)]))
        losses.append(float(algorithm.learn(staged[i])[name]))
    return algorithm.parameters().copy(), losses


def exact(device: str, small: bool) -> Iterator[Row]:
    """Updates on the device are those on the CPU, in float32 and without TF32."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    for name, overrides in CASES.items():
        job = job_of((*overrides, f"exp.train_steps={640 if small else 2048}"))
        trace = Trace(job, "cpu")
        here, losses = replayed(job, "cpu", trace.batches, 0)
        moved = float(np.linalg.norm(here - trace.first))
        for ahead in (0,) if "normalised" in name else (0, 1):  # the statistics of its turn
            there, found = replayed(job, device, trace.batches, ahead)
            away = float(np.linalg.norm(there - here)) / moved
            what = f"{name}: {len(losses)} updates{', staged ahead' * ahead}"
            yield row(f"{what}, weights", away, "of their way apart", away < NEAR)
        apart = max(abs(a - b) / (1e-3 + abs(b)) for a, b in zip(found, losses, strict=True))
        apart_first = abs(found[0] - losses[0]) / (1e-3 + abs(losses[0]))
        yield row(f"{name}: first loss", apart_first, "apart", apart_first < NEAR_LOSS)
        yield row(f"{name}: largest difference of losses", apart, "apart")


def graphs(device: str, small: bool) -> Iterator[Row]:
    """Updates that are replayed from a CUDA graph end where those end that are not.

    On a CPU none is captured, and the rows only show that the check runs.
    """
    torch.backends.cudnn.deterministic = True
    rates = ("hyp.lr_decay=9", "hyp.target_replace_iter=2", "hyp.clip_grad_norm=0.1")
    for name in ("DQN, MLP", "DQN, CNN", "DQN, prioritised", "DQN, C51"):
        job = job_of((*CASES[name], *rates, f"exp.train_steps={640 if small else 2048}"))
        batches, ends = Trace(job, "cpu").batches, []
        for captured in (True, False):
            algorithm: Any = job.algorithm(job.task, job.seed(Kind.LEARNER), device)
            first = algorithm.parameters().copy()
            algorithm._update._enabled &= captured
            for batch in batches:
                algorithm.learn(algorithm.stage(batch))
            ends.append(algorithm.parameters().copy())
            if captured:
                found = algorithm._update.captured
                yield row(f"{name}: a graph was captured", found, "", found == (device != "cpu"))
        moved = float(np.linalg.norm(ends[1] - first))
        away = float(np.linalg.norm(ends[0] - ends[1])) / moved
        yield row(f"{name}: graph against no graph", away, "of the way", away < NEAR_GRAPH)


def drawn(device: str) -> Iterator[Row]:
    """A replay whose frames lie on the device draws what one in the CPU's memory draws."""
    torch.backends.cudnn.deterministic = True
    for name, more in {"uniform": (), "prioritised": ("hyp.prioritised=True",)}.items():
        wander = ("hyp.epsilon=1.0", "hyp.max_decay_step=0")
        job = job_of((*DQN, *SPARSE, *wander, *more))
        there = dataclasses.replace(job, sampling=dataclasses.replace(job.sampling, device=device))
        pair = [Trace(each, device, most=10**6).drawn for each in (job, there)]
        same = [
            all(torch.equal(one, other) for one, other in zip(*both, strict=True))
            for both in zip(*pair, strict=True)
        ]
        share = sum(same) / max(1, len(same))
        yield row(f"replay on {device}, {name}: {len(same)} batches", share, "equal", share == 1)


def timed(work: Callable[[], Any], device: str, seconds: float) -> float:
    """Seconds of one call, the mean over at least so many seconds after a warm-up."""

    def finish() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(3):
        work()
    finish()
    n, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(5):
            work()
        n += 5
        finish()
    return (time.perf_counter() - began) / n


def made_up(batch: int) -> Arrays:
    """A batch of noise as a replay of Atari frames draws it."""
    random, frames = np.random.default_rng(0), (batch, 4, 84, 84)
    return {
        "obs": random.integers(256, size=frames, dtype=np.uint8),
        "next_obs": random.integers(256, size=frames, dtype=np.uint8),
        "action": random.integers(6, size=batch),
        "reward": random.standard_normal(batch, np.float32),
        "discount": np.full(batch, 0.99, np.float32),
    }


def speeds(device: str, small: bool) -> Iterator[Row]:
    """Samples per second of the NatureCNN's updates and of acting with it."""
    seconds = 0.05 if small else 1.0
    for kind in ("float32",) if small else ("float32", "bfloat16"):
        for batch in (4, 8) if small else (32, 256, 2048, 8192):
            overrides = (
                "agent.type='DQN'", "model.convs=None", "model.hidden=[512]",
                f"hyp.batch_size={batch}", f"model.precision='{kind}'",
            )  # fmt: skip
            config = load(BENCH / "jobs" / "catch.py", overrides)
            job = prepare(config, GAME)
            algorithm, arrays = job.algorithm(job.task, 0, device), made_up(batch)
            here = algorithm.stage(arrays)
            took = timed(lambda a=algorithm, b=here: a.learn(b), device, seconds)
            yield row(f"DQN update, {kind}, batch {batch}, there", batch / took, "samples/s")
            eager: Any = job.algorithm(job.task, 0, device)
            eager._update._enabled = False
            took = timed(lambda a=eager, b=here: a.learn(b), device, seconds)
            yield row(f"DQN update, {kind}, batch {batch}, no graph", batch / took, "samples/s")
            took = timed(lambda a=algorithm, b=arrays: a.learn(a.stage(b)), device, seconds)
            yield row(f"DQN update, {kind}, batch {batch}, staged", batch / took, "samples/s")
            took = timed(body_update(algorithm.online, here["obs"]), device, seconds)
            yield row(f"NatureCNN pass, {kind}, batch {batch}", batch / took, "samples/s")
    yield from inference(device, seconds, (16,) if small else (16, 64, 256))


def body_update(network: torch.nn.Module, frames: torch.Tensor) -> Callable[[], None]:
    """One pass forwards and backwards, and Adam, as anybody would write it."""
    adam = torch.optim.Adam(network.parameters(), lr=1e-4, fused=True)

    def update() -> None:
        adam.zero_grad(set_to_none=False)
        network(frames).square().mean().backward()
        adam.step()

    return update


def inference(device: str, seconds: float, batches: tuple[int, ...]) -> Iterator[Row]:
    """From frames in the CPU's memory to outputs there."""
    config = load(BENCH / "jobs" / "catch.py", ["model.convs=None", "model.hidden=[512]"])
    job = prepare(config, GAME)
    for batch in batches:
        frames, task = made_up(batch)["obs"], dataclasses.replace(job.task, device=device)
        policy = job.algorithm.policy(task, 0, 0)
        forward = policy.outputs.forward
        took = timed(lambda f=forward, x=frames: f(x), device, seconds)
        yield row(f"inference, batch {batch}", batch / took, "samples/s")


def part(name: str, device: str, small: bool) -> Iterator[Row]:
    """The rows of one of the parts of this file."""
    if name == "exact":
        yield from exact(device, small)
        yield from graphs(device, small)
        yield from drawn(device)
    else:
        yield from speeds(device, small)
