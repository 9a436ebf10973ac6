"""Stable-Baselines3 DQN on CartPole-v1 with the paper's Table 2 values."""

from __future__ import annotations

from options import count, whole
from sb3_common import parser, run
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--train-freq", type=count, default=1, help="steps between trainings")
    arguments.add_argument("--updates", type=whole, default=0, help="per training; 0: one per step")
    arguments.add_argument("--total-steps", type=count, default=500_000)
    arguments.add_argument("--decay-steps", type=whole, default=5_000, help="0: always 0.02")
    options = arguments.parse_args()
    model = DQN(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=1, seed=options.seed),
        learning_rate=5e-4,
        gamma=0.99,
        batch_size=32,
        buffer_size=2048,
        learning_starts=32,
        target_update_interval=100,
        train_freq=options.train_freq,
        gradient_steps=options.updates or options.train_freq,
        exploration_initial_eps=1.0 if options.decay_steps else 0.02,
        exploration_fraction=max(options.decay_steps, 1) / options.total_steps,
        exploration_final_eps=0.02,
        policy_kwargs={"net_arch": [256, 256], "optimizer_kwargs": {"eps": 1e-8}},
        seed=options.seed,
        device="cpu",
    )
    updates_per_step = model.gradient_steps / options.train_freq
    run(model, options.total_steps, options, replay_ratio=32 * updates_per_step)


if __name__ == "__main__":
    main()
