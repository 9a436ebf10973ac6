"""One moment of a run as a picture: a panel of text, or a single line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tianji.core.counts import Count
from tianji.core.status import Status
from tianji.core.wording import count_of, number, percent
from tianji.job.job import Job
from tianji.observe.bottleneck import bottleneck
from tianji.observe.mended import mended
from tianji.observe.metrics import ratio_of
from tianji.observe.rates import NOTHING, Counts, Rates
from tianji.observe.watch import Progress, apart
from tianji.roles.role_specs import Kind, is_first_learner, kind_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table
    from rich.text import Text

MOST_ACTORS = 8  # that get a row of their own
MOST_GROUPS = 4  # that get rows of their own, one for each kind of role
LABEL_WIDTH = 11  # columns before the values
BUSY_WIDTH = 30  # columns of a role's bar, where there is room
COLOURS: dict[Kind | None, str] = {
    Kind.LEARNER: "green",
    Kind.BUFFER: "magenta",
    Kind.ACTOR: "cyan",
    Kind.INFERENCE: "blue",
    Kind.REDUCER: "yellow",
}
UNITS: dict[Kind | None, str] = {Kind.LEARNER: "updates/s", Kind.REDUCER: "fusions/s"}
BLOCKS = "▁▂▃▄▅▆▇█"
MOSTLY = 0.9  # share of its time from which an actor is shown as paused


@dataclass(frozen=True)
class Scene:
    """One moment of a run, with all that a view shows of it."""

    job: Job
    engine: str
    progress: Progress
    rates: Rates = field(default_factory=Rates)
    elapsed: float = 0.0  # seconds since all roles were ready
    history: Sequence[float] = ()  # mean returns over time
    status: Status | None = None  # how the run ended
    evaluated: tuple[float, int] | None = None  # mean return of the last evaluation, and its steps
    since: Counts | None = None  # counters some seconds ago: what limits the run now
    evaluated_won: float | None = None  # share of its games that the last evaluation won


def span(seconds: float) -> str:
    """A time as one says it: `3.2 s`, `4 min 05 s`, `2 h 07 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def roughly(seconds: float) -> str:
    """A time that is only estimated: below a minute without a fraction."""
    return span(seconds) if seconds >= 60 else f"{seconds:.0f} s"


def seconds_left(scene: Scene) -> float | None:
    """Until the step or time limit at the pace so far; None while there is no telling."""
    exp, received = scene.job.config.exp, scene.progress.received
    left = []
    if received and scene.elapsed > 0:
        left.append(max(0, exp.train_steps - received) * scene.elapsed / received)
    if exp.max_seconds is not None:
        left.append(max(0.0, exp.max_seconds - scene.elapsed))
    return min(left) if left else None


def _time_left(scene: Scene) -> str:
    left = seconds_left(scene)
    if left is None:
        return "time left: -"
    whole = roughly(left)
    return f"{whole} left" if scene.job.stop_return is None else f"at most {whole} left"


def _title(scene: Scene) -> str:
    if scene.status is not None:
        return f"{scene.status} after {span(scene.elapsed)}"
    if scene.progress.started_at is None:
        return "starting"
    return f"{span(scene.elapsed)} · {_time_left(scene)}"


def _return(scene: Scene) -> str:
    mean, target = scene.progress.mean_return, scene.job.stop_return
    aim = "" if target is None else f" / {target:,g}"
    return number(mean) + aim + ("" if mean is None else apart(mean, scene.progress.learned_return))


def _evaluated(scene: Scene) -> str:
    """As in `9.5`, or `9.5, won 83 %`."""
    assert scene.evaluated is not None
    won = "" if scene.evaluated_won is None else f", won {percent(scene.evaluated_won)}"
    return f"{number(scene.evaluated[0])}{won}"


def _won(scene: Scene) -> str:
    """As in `83 % / 90 %`; nothing where nobody can win."""
    won, target = scene.progress.win_ratio, scene.job.config.stop_win_ratio
    if won is None:
        return ""
    return percent(won) + ("" if target is None else f" / {percent(target)}")


def sparkline(values: Sequence[float], width: int) -> str:
    """The course of `values` as a row of at most `width` blocks, each the mean of its part."""
    if not values or width < 1:
        return ""
    n = min(width, len(values))
    cuts = [round(i * len(values) / n) for i in range(n + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    low, high = min(means), max(means)
    if low == high:  # a constant is neither low nor high
        return BLOCKS[len(BLOCKS) // 2] * n
    scale = (len(BLOCKS) - 1) / (high - low)
    return "".join(BLOCKS[round((mean - low) * scale)] for mean in means)


def line(scene: Scene) -> str:
    """The moment as one line of plain text."""
    progress, stale = scene.progress, scene.progress.staleness.percentile(0.5)
    won = f"won {_won(scene)}   " if _won(scene) else ""
    played = "" if scene.evaluated is None else f"evaluation {_evaluated(scene)}   "
    faults = [count_of(progress.restarts, "restart")] if progress.restarts else []
    survived = ", ".join([*faults, *filter(None, [mended(progress.mended)])])
    return (
        f"{span(scene.elapsed):>7}  {progress.produced:>9,} steps  "
        f"{scene.rates.production:>7,.0f}/s   return {_return(scene)}   {won}{played}"
        f"updates {progress.updates:,}   staleness {stale:g}   "
        f"{survived}{'   ' * bool(survived)}{_limit(scene).partition(': ')[0]}"
    )


def panel(scene: Scene) -> RenderableType:
    """The moment as a panel, for any width from 60 columns up."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    title = Text.assemble(
        (scene.job.config.name, "bold"),
        (f" · {scene.engine} engine · ", "dim"),
        (_title(scene), _status_style(scene.status)),
    )
    body = Group(_head(scene), "", _roles(scene), "", _foot(scene))
    return Panel(body, title=title, title_align="left", border_style="bright_black", padding=(0, 1))


def _status_style(status: Status | None) -> str:
    if status is Status.SOLVED:
        return "bold green"
    return "bold red" if status is Status.FAILED else "bold"


class _Wide:
    """Text that is made for the width it is given."""

    def __init__(self, make: Callable[[int], Text]) -> None:
        self._make = make

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Text]:
        yield self._make(options.max_width)


def _bar(share: float, style: str) -> _Wide:
    """A bar that reads without colours too."""
    from rich.text import Text

    def make(width: int) -> Text:
        filled = round(min(1.0, max(0.0, share)) * width)
        return Text.assemble(("━" * filled, style), ("─" * (width - filled), "bright_black"))

    return _Wide(make)


def _head(scene: Scene) -> Table:
    from rich.table import Table
    from rich.text import Text

    progress, steps = scene.progress, scene.job.config.exp.train_steps
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(style="dim", min_width=LABEL_WIDTH)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1, no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    share = progress.received / steps
    done = progress.received if scene.status is None else progress.produced  # as the summary says
    grid.add_row("steps", f"{done:,} / {steps:,}", _bar(share, "blue"), percent(share))
    spark = _Wide(lambda width: Text(sparkline(scene.history, width), style="yellow"))
    episodes = f"{progress.n_episodes:,} episodes"
    grid.add_row("return", Text(_return(scene), style="bold"), spark, episodes)
    if won := _won(scene):
        bar = _bar(progress.win_ratio or 0.0, "yellow")
        grid.add_row("won", Text(won, style="bold"), bar, "")
    if scene.evaluated is not None:
        at = Text(f"at {scene.evaluated[1]:,} steps", style="dim")
        grid.add_row("evaluation", _evaluated(scene), at, "")
    return grid


class _Row(NamedTuple):
    """What the panel says of one role, or of several actors together."""

    role: str = "role"
    rate: str = "rate"
    busy: str = ""
    idle: str = "idle"
    queue: str = "queue"
    version: str = "version"
    share: float | None = None  # length of the bar
    style: str = "dim"


def _roles(scene: Scene) -> _Wide:
    """One line for each role; a rich table of so many cells would take most of a frame's time."""
    names, n_groups = list(scene.progress.counts), scene.job.config.n_groups
    together = _of_one_group(names) if n_groups == 1 else _by_kind(names, n_groups <= MOST_GROUPS)
    rows = [_Row(), *(_row(scene, some, label) for label, some in together.items())]
    return _Wide(lambda width: _lines(rows, width))


def _of_one_group(names: list[str]) -> dict[str, list[str]]:
    """A row for each role, and one for the actors beyond the first few."""
    actors = [name for name in names if kind_of(name) is Kind.ACTOR]
    rest = actors[MOST_ACTORS:] if len(actors) > MOST_ACTORS + 1 else []
    more = {f"… and {len(rest)} more actors": rest} if rest else {}
    return {name: [name] for name in names if name not in rest} | more


def _by_kind(names: list[str], each_group: bool) -> dict[str, list[str]]:
    """A row for each kind of role, in each group or in all of them, as in `actor-0.* (4)`."""
    rows: dict[str, list[str]] = {}
    for name in names:
        rows.setdefault(name.partition("." if each_group else "-")[0], []).append(name)
    star = ".*" if each_group else "-*"
    labels = {place: f"{place}{star} ({len(some)})" for place, some in rows.items()}
    return {some[0] if len(some) == 1 else labels[p]: some for p, some in rows.items()}


def _lines(rows: Sequence[_Row], width: int) -> Text:
    from rich.text import Text

    cells = zip(*(row[:6] for row in rows), strict=True)
    role, rate, *rest = (max(len(cell) for cell in column) for column in cells)
    bar = max(4, min(BUSY_WIDTH, width - max(LABEL_WIDTH, role) - rate - sum(rest) - 12))
    text = Text(no_wrap=True, overflow="ellipsis")
    for row in rows:
        header = row.style == "dim"
        text.append(f"{row.role:<{max(LABEL_WIDTH, role)}}  {row.rate:>{rate}}  ", "dim" * header)
        if row.share is None:
            text.append(f"{'busy' * header:<{bar}}", "dim")
        else:
            filled = round(row.share * bar)
            text.append("━" * filled, row.style).append("─" * (bar - filled), "bright_black")
        for cell, size in zip(row[2:6], rest, strict=True):
            text.append(f"  {cell:>{size}}", "dim" * header)
        text.append("\n")
    text.right_crop(1)
    return text


def _row(scene: Scene, names: Sequence[str], label: str) -> _Row:
    kind, progress = kind_of(names[0]), scene.progress
    if progress.started_at is None:
        ready = all(progress.counts[name][Count.READY_AT] for name in names)
        return _Row(label, "ready" if ready else "starting", "", "", "", "", None, "")
    made = Count.FUSIONS if kind is Kind.REDUCER else Count.VERSION
    version = min(int(progress.counts[name][made]) for name in names)
    shown = f"{version:,}" if kind is not Kind.BUFFER and progress.updates else ""
    each = [name for name in names if is_first_learner(name)] or names  # one update of several
    rate = sum(scene.rates.roles.get(name, 0.0) for name in each)
    spent = [scene.rates.shares.get(name, NOTHING) for name in names]
    busy, idle, paused, *_ = (sum(times) / len(names) for times in zip(*spent, strict=True))
    unit = UNITS.get(kind, "steps/s  ")
    speed = f"{rate:,.0f}" if unit == "steps/s  " or rate >= 100 else f"{rate:,.1f}"
    queue, shares = _queue(scene, names), (percent(busy), percent(idle))
    pace = "paused" if paused > MOSTLY else f"{speed} {unit}"
    return _Row(label, pace, *shares, queue, shown, busy, COLOURS[kind])


def _queue(scene: Scene, names: Sequence[str]) -> str:
    """How many of the messages that may wait for these roles do."""
    job, kind = scene.job, kind_of(names[0])
    if kind not in (Kind.BUFFER, Kind.LEARNER):
        return ""
    room = job.depth * job.task.n_actors if kind is Kind.BUFFER else job.batches_ahead
    waiting = sum(int(scene.progress.counts[name][Count.QUEUE]) for name in names)
    return f"{waiting}/{room * len(names)}"


def _foot(scene: Scene) -> Table:
    from rich.table import Table
    from rich.text import Text

    progress, job = scene.progress, scene.job
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", min_width=LABEL_WIDTH)
    grid.add_column()
    ratio, fresh = ratio_of(progress, job), progress.freshness if progress.consumed else None
    grid.add_row(
        "balance",
        f"ratio {_number(ratio)}, target {_number(job.ratio)} · "
        f"freshness {_number(fresh)}, target {_number(job.sampling.freshness)}",
    )
    stale = progress.staleness.summary()
    dropped = f" · {progress.dropped:,} dropped" if progress.dropped else ""
    quantiles = f"median {stale['p50']:g}, p95 {stale['p95']:g}, max {stale['max']:g} updates"
    drift = ""
    if progress.ess is not None and stale["max"]:
        gone = progress.scalars.get("staleness/kl")
        drift = f" · ESS {percent(progress.ess)}" + ("" if gone is None else f" · KL {gone:.2g}")
    if progress.restarts:
        grid.add_row("restarts", f"{progress.restarts:,} · last: {_last_fault(progress)}")
    if broken := mended(progress.mended):
        grid.add_row("mended", broken)
    grid.add_row("staleness", f"{quantiles if progress.consumed else '-'}{drift}{dropped}")
    if progress.distance is not None:
        kl = "" if progress.fusion_kl is None else f" · KL {progress.fusion_kl:.2g}"
        grid.add_row("fusions", f"{progress.fusions:,} · {progress.distance:.3g} apart{kl}")
    word, _, reason = _limit(scene).partition(": ")
    style = "bold green" if word in ("balanced", "in turns") else "bold yellow"
    grid.add_row("limit", Text.assemble((word, style), f": {reason}"))
    return grid


def _last_fault(progress: Progress) -> str:
    """As in `actor-0.1 was killed by SIGKILL, back after 1.2 s`."""
    if not progress.faults:
        return "before it was resumed"
    fault = progress.faults[-1]
    away = fault.away_seconds
    return f"{fault.process} {fault.how}, " + (
        "away" if away is None else f"back after {span(away)}"
    )


def _limit(scene: Scene) -> str:
    """What limits the run now; once it has ended, what limited all of it."""
    since = None if scene.status is not None else scene.since
    return bottleneck(scene.progress, scene.job, scene.engine, since)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:#.3g}"
