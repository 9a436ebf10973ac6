"""Figure 4 a, b and d: DQN on Atari, TianJi's mode against Ape-X's: returns over time, samples/s.

a, b  the same network, samples per update and replay ratio; Ape-X adds priorities and explores
      with constant rates
d     TianJi's mode with more actors; other systems are not run here
"""

from __future__ import annotations

import sys

from courses import GAMES, Case, conduct, name_of, options, preset
from curves import has_atari
from options import count, some_of

APEX = ("agent.type='ApeX'", "hyp.epsilon=0.4", "hyp.max_decay_step=0", "hyp.epsilon_spread=7.0")
CONFIG = preset("fast_dqn", "pong")


def main() -> int:
    parser = options("figure4", __doc__, 600.0)
    parser.add_argument("--parts", type=some_of("abd"), default="abd", help="a and b are one run")
    parser.add_argument("--game", choices=GAMES, default="pong")
    parser.add_argument("--actors", type=count, nargs="+", default=[1, 2], help="of part d")
    o = parser.parse_args()
    if not has_atari():
        return 2
    game = f"environment.game='{name_of(o.game)}'"
    cases = []
    if set(o.parts) & {"a", "b"}:
        cases += [
            Case(o.game, "TianJi", CONFIG, (game,)),
            Case(o.game, "Ape-X", CONFIG, (game, *APEX)),
        ]
    if "d" in o.parts:
        cases += [
            Case(o.game, f"TianJi, {n} actors", CONFIG, (game, f"actor_cfg.num={n}"))
            for n in o.actors
            if n > 1 or not cases
        ]
    return conduct("figure4", cases, o, "DQN: true points of whole games, real costs.")


if __name__ == "__main__":
    sys.exit(main())
