"""RLlib's PPO on CartPole-v1 with the values of the paper's Table 2; run by actors.py."""

from __future__ import annotations

import argparse
import time
from typing import Any

import gymnasium
import ray
from clock import print_result
from options import Options, count, number, number_from, positive, whole
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env

WINDOW = 100  # finished episodes


def make(config: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """The environment that everybody is given."""
    if not config["step_seconds"]:
        return gymnasium.make("CartPole-v1")
    return gymnasium.make("sleepy:SleepyCartPole-v1", step_seconds=config["step_seconds"])


def configured(options: argparse.Namespace) -> PPOConfig:
    """Table 2, with one rollout of 512 steps from each of the actors in a batch."""
    register_env("task", make)
    return (
        PPOConfig()
        .environment("task", env_config={"step_seconds": options.step_seconds})
        .env_runners(
            num_env_runners=options.envs, num_envs_per_env_runner=1, rollout_fragment_length=512,
            num_cpus_per_env_runner=0.01,
        )
        .learners(num_learners=0)
        .training(
            gamma=0.99, lambda_=0.95, lr=1e-4, clip_param=0.2, num_epochs=10, minibatch_size=256,
            train_batch_size_per_learner=512 * options.envs, entropy_coeff=0.0, vf_loss_coeff=0.5,
            use_kl_loss=False, grad_clip=0.5, grad_clip_by="global_norm",
        )
        .rl_module(
            model_config=DefaultModelConfig(fcnet_hiddens=[256, 256], fcnet_activation="tanh")
        )
        .reporting(metrics_num_episodes_for_smoothing=WINDOW)
        .debugging(seed=options.seed, log_level="ERROR")
    )  # fmt: skip


def main() -> None:
    arguments = Options(__doc__)
    arguments.add_argument("--seed", type=whole, default=0)
    arguments.add_argument("--envs", type=count, default=2, help="actors, of one environment each")
    arguments.add_argument("--step-seconds", type=number_from(0), default=0.0)
    arguments.add_argument("--target", type=number, default=300.0)
    arguments.add_argument("--max-seconds", type=positive, default=600.0)
    options = arguments.parse_args()
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    algorithm = configured(options).build_algo()
    began, steps, solved = time.perf_counter(), 0, False
    latest = float("-inf")
    while time.perf_counter() - began < options.max_seconds and not solved:
        found = algorithm.train()["env_runners"]
        steps = int(found["num_env_steps_sampled_lifetime"])
        latest = float(found.get("episode_return_mean", latest))
        solved = latest >= options.target
    print_result("rllib", solved, began, steps, options)
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
