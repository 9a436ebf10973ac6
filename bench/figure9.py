"""Figure 9: synchronous PPO on five Atari games, the return over time, beside returns of others.

Ten minutes are a small part of the ten million steps that the returns of others are of.
"""

from __future__ import annotations

import sys

from courses import GAMES, Case, conduct, options, preset
from curves import has_atari


def main() -> int:
    parser = options("figure9", __doc__, 600.0)
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES))
    parser.add_argument(
        "--presets", choices=("fast", "paper_ppo"), default="fast", help="of configs/atari/"
    )
    o = parser.parse_args()
    if not has_atari():
        return 2
    cases = [Case(game, "TianJi", preset(o.presets, game), ()) for game in o.games]
    about = f"Synchronous PPO, {o.presets}_*.py, {o.seconds:g} s each: true points, whole games."
    return conduct("figure9", cases, o, about)


if __name__ == "__main__":
    sys.exit(main())
