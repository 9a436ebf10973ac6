"""Ring gossip between groups beside their average: environment steps and updates to the target.

Groups are trained in one process by turns, so that this is about learning and not about time. They
begin with the same parameters, and every `interval` updates they exchange them:

  averaging   as fusion does: the reducer answers all of them with the mean of all
  gossip      as in GALA: each gets the mean of its own and those of the group before it in a ring
  none        never

The learners are those of the package in all three. They add `answer - what they sent` after their
next update, as ever; only the role that answers differs. With two groups the ring is the average.
The same seed gives the same steps, whatever else the machine does.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence

from experiment import REAL, Trial, conduct, machine, parser
from figures import Panel, Series
from measures import shown
from options import CONFIGS, at_least, count
from ring_roles import AVERAGING, GOSSIP, NONE, crew
from tables import cells, markdown, spread, values, where
from trainings import Row

from tianji.config import load
from tianji.core.stats import paired
from tianji.job.factory import make_env
from tianji.job.job import Job, prepare
from tianji.observe.watch import Progress, Watch

WAYS = (AVERAGING, GOSSIP, NONE)
INTERVALS = {"ppo": [3, 10], "dqn": [10, 50]}  # PPO makes few updates, and large ones
ROUNDS_PER_LOOK = 32  # turns of every role from one look at the episodes to the next
COLUMNS = (
    "kind", "preset", "groups", "interval", "way", "seed", "env_steps", "group_steps", "updates",
    "group_updates", "exchanges", "distance", "produced", "limit", "seconds",
    "n_bytes",
)  # fmt: skip
DIGITS = {"env_steps": 0, "group_steps": 0, "updates": 0, "group_updates": 0}


def job_of(preset: str, n_groups: int, interval: int, way: str, seed: int) -> Job:
    """A preset with several groups; without exchange they begin alike too, but are never due."""
    settings = {
        "global_cfg.group_num": n_groups,
        "learner_cfg.send_root_interval": 10**9 if way == NONE else interval,
        "exp.seed": seed,
        "exp.train_steps": 10**9,
    }
    words = tuple(f"{key}={value}" for key, value in settings.items())
    config = load(CONFIGS / f"cartpole_{preset}.py", words)
    env = make_env(config)
    env.close()
    return prepare(config, env.spec)


def train(job: Job, way: str, limit: int, seconds: float) -> Progress:
    """Gives every role its turns until the target is reached, or so many steps are made."""
    transport, roles = crew(job, way)
    watch, ends_at = Watch(job, transport), time.monotonic() + seconds
    reports = [transport.outbox(f"report {role.name}") for role in roles]
    progress = watch.progress
    try:
        while progress.solved_at is None and progress.produced < limit:
            for _ in range(ROUNDS_PER_LOOK):
                for role in roles:
                    role.step()
            for role, outbox in zip(roles, reports, strict=True):
                outbox.push(role.report(), 0)
            progress = watch.poll()
            if time.monotonic() > ends_at:
                break
    finally:
        for role in roles:
            role.close()
    return progress


def run(
    preset: str, n_groups: int, interval: int, way: str, seed: int, limit: int, seconds: float
) -> Row:
    """One run; a target that was not reached took for ever."""
    began = time.monotonic()
    job = job_of(preset, n_groups, interval, way, seed)
    progress = train(job, way, limit * n_groups, seconds)
    solved = progress.solved_at is not None
    steps, updates = (progress.produced, progress.updates) if solved else (math.inf, math.inf)
    return {
        "env_steps": steps,
        "group_steps": steps / n_groups,
        "updates": updates,
        "group_updates": updates / n_groups,
        "exchanges": progress.fusions,
        "distance": math.nan if progress.distance is None else progress.distance,
        "produced": progress.produced,
        "limit": limit * n_groups,
        "seconds": round(time.monotonic() - began, 2),
        "n_bytes": 4 * job.n_parameters,
    }


def log_ratios(rows: Sequence[Row], one: str, other: str) -> list[float]:
    """Of the steps of `other` to those of `one`, for runs that differ in nothing else.

    A run that never arrived counts as if it had arrived at its limit.
    """

    def found(way: str) -> dict[tuple[object, ...], float]:
        keys = ("preset", "groups", "interval", "seed")
        return {
            tuple(row[key] for key in keys): math.log(min(row["env_steps"], row["limit"]))
            for row in where(rows, way=way)
        }

    first, second = found(one), found(other)
    return [second[key] - first[key] for key in first if key in second]


def typical(logarithms: Sequence[float]) -> tuple[float, float, float]:
    """The interquartile mean of ratios, by their logarithms, with an interval (it, low, high)."""
    ratio, low, high = paired([0.0] * len(logarithms), logarithms)
    return math.exp(ratio), math.exp(low), math.inf if high == math.inf else math.exp(high)


def settings_of(rows: Sequence[Row]) -> list[tuple[str, int, int]]:
    """Preset, groups and interval, in the order in which they came."""
    return list(dict.fromkeys((r["preset"], r["groups"], r["interval"]) for r in rows))


def table(rows: list[Row]) -> str:
    """A line for each way of each setting; gossip against averaging; what each would send."""
    header = ["preset", "groups", "interval", "way", "runs", "env steps, all groups",
              "of each group", "updates, all groups", "of each group", "distance"]  # fmt: skip
    lines = []
    for preset, groups, interval in settings_of(rows):
        here = where(rows, preset=preset, groups=groups, interval=interval)
        for way in values(here, "way"):
            runs = where(here, way=way)
            start = [preset, str(groups), str(interval or "-"), way, str(len(runs))]
            apart = "-" if way == NONE else spread(runs, "distance").text(1)
            lines.append([*start, *cells(runs, DIGITS), apart])
    title = f"Gossip and averaging, CartPole to a mean return of 475, {machine(REAL)}"
    return "\n\n".join([f"{title}\n\n{markdown(header, lines)}", compared(rows), costs(rows)])


def compared(rows: list[Row]) -> str:
    """Pairs of the same seed: steps of gossip in those of averaging, for each setting and all."""
    header = ["preset", "groups", "interval", "pairs", "gossip / averaging", "95 % interval"]
    lines = []
    exchanging = [row for row in rows if row["way"] != NONE]
    parts: list[tuple[tuple[object, ...], list[Row]]] = [
        (setting, where(exchanging, **_named(setting))) for setting in settings_of(exchanging)
    ]
    for preset in values(exchanging, "preset"):
        here = [r for r in where(exchanging, preset=preset) if r["groups"] > 2]  # 2: the same
        parts.append(((preset, "4 and more", "all"), here))
    for setting, here in parts:
        if ratios := log_ratios(here, AVERAGING, GOSSIP):
            ratio, low, high = typical(ratios)
            between = f"{shown(low, 2)}-{shown(high, 2)}"
            lines.append([*map(str, setting), str(len(ratios)), shown(ratio, 2), between])
    return f"Environment steps, runs of the same seed\n\n{markdown(header, lines)}"


def _named(setting: tuple[str, int, int]) -> dict[str, object]:
    return dict(zip(("preset", "groups", "interval"), setting, strict=True))


def costs(rows: list[Row]) -> str:
    """What one exchange sends; none of it is waited for."""
    found = []
    for preset in values(rows, "preset"):
        n = where(rows, preset=preset)[0]["n_bytes"]
        found.append(
            f"{preset}: a message is {n:,} bytes. An exchange is 2 for each group by averaging "
            f"({2 * n:,} bytes, one to the reducer and the mean back), 1 by gossip ({n:,})."
        )
    return "\n".join(found)


def panels(rows: list[Row]) -> list[Panel]:
    """Steps of all groups, a drawing for each preset."""
    found = []
    for preset in values(rows, "preset"):
        here = where(rows, preset=preset)
        title = f"{preset}: steps to 475 ({REAL})"
        panel = Panel(title, "groups / interval", "environment steps of all groups", is_bars=True)
        for way in values(here, "way"):
            points = {
                f"{row['groups']} / {row['interval'] or '-'}": where(
                    here, way=way, groups=row["groups"], interval=row["interval"]
                )
                for row in where(here, way=way)
            }
            pairs = [(place, spread(runs, "env_steps")) for place, runs in points.items()]
            panel.series.append(Series(way, [*pairs]))
        found.append(panel)
    return found


def plan(presets: Sequence[str], groups: Sequence[int], given: Sequence[int] | None) -> list[Row]:
    """All runs of one seed; with two groups gossip is averaging, and is not run again."""
    found: list[Row] = []
    for n_groups in groups:
        for preset in presets:
            for interval in given or INTERVALS[preset]:
                ways = [AVERAGING] if n_groups == 2 else [AVERAGING, GOSSIP]
                found += [
                    {"preset": preset, "groups": n_groups, "interval": interval, "way": way}
                    for way in ways
                ]
            found.append({"preset": preset, "groups": n_groups, "interval": 0, "way": NONE})
    return found


def main() -> int:
    options = parser("gossip", __doc__, seconds=300)
    options.add_argument("--presets", nargs="+", choices=sorted(INTERVALS), default=["ppo", "dqn"])
    options.add_argument("--groups", type=at_least(2), nargs="+", help="default: 2 4 8")
    options.add_argument("--intervals", type=count, nargs="+", help="default: ppo 3 10, dqn 10 50")
    options.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="default: all")
    options.add_argument("--limit", type=count, default=400_000, help="steps of a group (400,000)")
    given = options.parse_args()
    import torch  # here, so that tests of what is above need not load it

    groups = given.groups or ([4] if given.quick else [2, 4, 8])
    torch.set_num_threads(1)

    def trials(seed: int) -> Iterator[Trial]:
        for each in plan(given.presets, groups, given.intervals):
            if each["way"] in given.ways:
                about = (*each.values(), seed, given.limit, given.seconds)
                yield {"kind": REAL, **each}, run, about

    return conduct("gossip", COLUMNS, given, trials, table, panels)


if __name__ == "__main__":
    sys.exit(main())
