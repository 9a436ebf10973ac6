"""Figure 9: synchronous PPO on five Atari games, the return over steps, beside returns of others.

Ten minutes are a small part of the ten million steps that the returns of others are of. `laptop`
is the recipe of configs/atari/pong_laptop.py, for two cores, on every game: asynchronous.
"""

from __future__ import annotations

import sys

from courses import GAMES, Case, conduct, name_of, options, preset
from curves import has_atari
from options import CONFIGS

WRAPPERS = "['noop','skip','life','fire',dict(type='warp',height=42,width=42),'clip','stack']"


def main() -> int:
    parser = options("figure9", __doc__, 600.0)
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES))
    parser.add_argument(
        "--presets", choices=("fast", "paper_ppo", "laptop"), default="fast", help="configs/atari/"
    )
    o = parser.parse_args()
    if not has_atari():
        return 2
    cases = [case(o.presets, game) for game in o.games]
    kind = "Asynchronous" if o.presets == "laptop" else "Synchronous"
    about = f"{kind} PPO, {o.presets}, {o.seconds:g} s each: true points, whole games."
    return conduct("figure9", cases, o, about, over="steps")


def case(kind: str, game: str) -> Case:
    """A game with a preset of its own, or with that of Pong on a laptop."""
    if kind != "laptop":
        return Case(game, "TianJi", preset(kind, game))
    settings = (
        f"environment.game='{name_of(game)}'",
        f"environment.wrappers={WRAPPERS}",
        "environment.full_actions=False",
        "exp.train_steps=10_000_000",
        "exp.stop_return=None",
    )
    return Case(game, "TianJi", CONFIGS / "atari" / "pong_laptop.py", settings)


if __name__ == "__main__":
    sys.exit(main())
