"""Figure 1 of the paper: the time of the same cores, as five kinds of systems would spend it.

Takes the costs that `tianji plan` has measured from the file of a plan, schedules each style with
them, prints a table and draws who does what when. The styles have the cores of one group of
`--actors` actors and a learner. Ours is what a plan makes of as many cores, unless `--as-named`.
docs/simulate.md says what is in the model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from options import OUT, Options, count, existing_file, number_from, whole
from systems.picture import draw
from systems.schedule import Schedule
from systems.styles import SPREAD, STYLES, as_planned, schedules
from systems.timeline import IDLE
from tables import markdown

from tianji.core.errors import TianJiError
from tianji.strategy.plan import plan_file
from tianji.strategy.simulate.core_layout import Layout

HEAD = ("style", "split", "cores", "produced/s", "consumed/s", "per core", "idle %")


def parser() -> Options:
    options = Options(__doc__)
    options.add_argument("plan", type=existing_file, help="what `tianji plan` has written")
    options.add_argument("--styles", nargs="+", choices=STYLES, default=STYLES)
    options.add_argument("--actors", type=count, default=4, help="of the group (4)")
    options.add_argument("--envs", type=count, help="of each actor (the profile's best)")
    options.add_argument("--learners", type=count, default=1, help="of the group (1)")
    options.add_argument("--learner-cores", type=count, default=1, help="of each learner (1)")
    options.add_argument("--buffer-alone", action="store_true", help="a core for our buffer")
    options.add_argument("--as-named", action="store_true", help="draw ours with as many actors")
    options.add_argument("--spread", type=number_from(0), default=SPREAD, help="of costs (0.05)")
    options.add_argument("--seed", type=whole, default=0)
    options.add_out(OUT / "figure1")
    return options


def drawn(given: argparse.Namespace) -> list[Schedule]:
    """The styles that were asked for."""
    profile = plan_file.read(given.plan).profile
    layout = Layout(
        actors=given.actors,
        learners=given.learners,
        learner_cores=given.learner_cores,
        envs=given.envs,
        buffer_alone=given.buffer_alone,
    )
    ours = layout if given.as_named else as_planned(profile, layout, given.learner_cores)
    return schedules(profile, layout, tuple(given.styles), given.seed, given.spread, ours)


def table(all_: Sequence[Schedule]) -> str:
    """A line for each style: rates, and the share of its cores' time that each wait takes."""
    rows = []
    for each in all_:
        idle = each.idle()
        waits = [f"{100 * share:.1f}" for share in (sum(idle.values()), *map(idle.get, IDLE))]
        rates = each.production, each.consumption, each.consumption / each.cores
        cells = [f"{rate:,.1f}" for rate in rates]
        rows.append([each.style, each.split, str(each.cores), *cells, *waits])
    return markdown([*HEAD, "I", "II", "III", "held"], rows)


def main() -> int:
    given = parser().parse_args()
    try:
        found = drawn(given)
    except TianJiError as error:
        print(f"figure1.py: {error}", file=sys.stderr)
        return 2
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "figure1.md").write_text(table(found) + "\n")
    draw(found).savefig(given.out / "figure1.svg")
    print(f"{table(found)}\n\nwritten to {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
