"""Figure 11: the same PPO learning on this machine's CPU cores and on its GPU."""

from __future__ import annotations

import os
import sys

from courses import GAMES, Case, conduct, options, preset
from curves import has_atari


def main() -> int:
    parser = options("figure11", __doc__, 300.0)
    parser.add_argument("--game", choices=GAMES, default="pong")
    o = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        parser.error("torch sees no GPU here, and the figure compares one with the CPU")
    if not has_atari():
        return 2
    cores = len(os.sched_getaffinity(0))
    config = preset("fast", o.game)
    cases = [
        Case(o.game, f"{cores} cores", config, ("learner_cfg.device='cpu'",)),
        Case(o.game, f"{cores} cores and a GPU", config, ("learner_cfg.device='cuda'",)),
    ]
    return conduct("figure11", cases, o, f"PPO on {cores} cores, and with {gpu_name()}.")


def gpu_name() -> str:
    """Of the first one."""
    import torch

    return str(torch.cuda.get_device_name())


if __name__ == "__main__":
    sys.exit(main())
