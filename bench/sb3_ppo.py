"""Stable-Baselines3 PPO on CartPole-v1, with rl-zoo's tuned settings or the paper's Table 2."""

from __future__ import annotations

from typing import Any

from options import count, number_from
from sb3_common import parser, run
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv

ZOO: dict[str, Any] = {
    "n_steps": 32,
    "batch_size": 256,
    "gae_lambda": 0.8,
    "gamma": 0.98,
    "n_epochs": 20,
    "ent_coef": 0.0,
    "learning_rate": LinearSchedule(1e-3, 0.0, 1.0),
    "clip_range": LinearSchedule(0.2, 0.0, 1.0),
}
TABLE_2: dict[str, Any] = {
    "n_steps": 512,
    "batch_size": 256,
    "gae_lambda": 0.95,
    "gamma": 0.99,
    "n_epochs": 10,
    "ent_coef": 0.0,
    "learning_rate": 1e-4,
    "clip_range": 0.2,
    "policy_kwargs": {
        "net_arch": {"pi": [256, 256], "vf": [256, 256]},
        "optimizer_kwargs": {"eps": 1e-5},
    },
}
SETTINGS = {"zoo": (8, 100_000, ZOO), "table2": (2, 1_000_000, TABLE_2)}


def environments(n: int, seed: int, step_seconds: float) -> VecEnv:
    """In one process, which is fastest for CartPole; slow ones in processes of their own."""
    if not step_seconds:
        return make_vec_env("CartPole-v1", n_envs=n, seed=seed)
    return make_vec_env(
        "sleepy:SleepyCartPole-v1",
        n_envs=n,
        seed=seed,
        env_kwargs={"step_seconds": step_seconds},
        vec_env_cls=SubprocVecEnv,
    )


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--settings", choices=SETTINGS, default="zoo")
    arguments.add_argument("--envs", type=count, help="default: that of the settings")
    arguments.add_argument(
        "--step-seconds", type=number_from(0), default=0.0, help="slow steps, in a process for each"
    )
    options = arguments.parse_args()
    n_envs, total_steps, values = SETTINGS[options.settings]
    env = environments(options.envs or n_envs, options.seed, options.step_seconds)
    model = PPO("MlpPolicy", env, seed=options.seed, device="cpu", **values)
    run(model, total_steps, options)


if __name__ == "__main__":
    main()
