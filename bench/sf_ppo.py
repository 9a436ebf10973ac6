"""Sample Factory's PPO on Atari's Pong, with its own wrappers, network and Atari settings.

Runs in the environment that `peers.py --peers sf` makes, as a system of sf.py.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from typing import Any

from ale_py.registration import register_v0_v4_envs
from options import Options, count, positive, whole
from sample_factory.algo.utils.misc import LEARNER_ENV_STEPS
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner
from sf_examples.atari.atari_params import atari_override_defaults
from sf_examples.atari.atari_utils import make_atari_env

GAME = "atari_pong"


def make(name: str, cfg: Any, env_config: Any, render_mode: str | None = None) -> Any:
    """Theirs; ale-py does not tell an older gymnasium of its games by itself."""
    register_v0_v4_envs()
    return make_atari_env(name, cfg, env_config, render_mode)


def configured(o: argparse.Namespace, folder: str) -> Any:
    """Their settings for Atari, for as many workers as there are cores to use."""
    values = {
        "env": GAME, "train_dir": folder, "device": "cpu", "seed": o.seed,
        "num_workers": o.workers, "num_envs_per_worker": o.envs // o.workers,
        "worker_num_splits": 2 if o.overlap else 1, "async_rl": o.overlap,
        "train_for_env_steps": 10**9, "num_epochs": o.epochs, "summaries_use_frameskip": False,
        "save_every_sec": 10**6,
    }  # fmt: skip
    words = [f"--{key}={value}" for key, value in values.items()]
    parser, _ = parse_sf_args(argv=words)
    atari_override_defaults(GAME, parser)
    return parse_full_cfg(parser, words)


def main() -> None:
    parser = Options(__doc__)
    parser.add_argument("--seed", type=whole, default=0)
    parser.add_argument("--workers", type=count, default=2)
    parser.add_argument("--envs", type=count, default=8, help="games of all workers")
    parser.add_argument("--epochs", type=count, default=4)
    parser.add_argument("--overlap", action="store_true", help="sampling beside learning")
    parser.add_argument("--max-seconds", type=positive, default=60.0)
    o = parser.parse_args()
    register_env(GAME, make)
    seen: list[tuple[float, int]] = []  # samples learned from, and when

    def learned(runner: Any, message: dict[str, Any], policy: int) -> None:
        if message[LEARNER_ENV_STEPS]:  # the first word comes before the first batch
            seen.append((time.perf_counter(), message[LEARNER_ENV_STEPS]))
        if seen and seen[-1][0] - seen[0][0] >= o.max_seconds:
            runner.cfg.train_for_env_steps = 0  # it looks at no clock: train_for_seconds is idle

    with tempfile.TemporaryDirectory() as folder:
        _, runner = make_runner(configured(o, folder))
        runner.policy_msg_handlers[LEARNER_ENV_STEPS].append(learned)
        runner.init()
        runner.run()
    (began, first), (ended, last) = seen[0], seen[-1]
    rate = (last - first) / (ended - began)
    print(json.dumps({"samples_per_second": round(rate, 1), "samples": last, "options": vars(o)}))


if __name__ == "__main__":
    main()
