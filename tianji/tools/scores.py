"""How good the weights are that a run has kept: the last ones, the best ones, all over time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tianji.core import checkpoint
from tianji.core.columns import aligned
from tianji.core.terminal import say
from tianji.core.wording import count_of, number
from tianji.envs import Rendering
from tianji.observe.evaluation_file import FILE, add_row
from tianji.roles.evaluation import Evaluation, Tell, check, evaluate, play
from tianji.runs.trained import Trained, load, newest, run_of
from tianji.runs.weights_file import BEST, FINAL

NEWS_SECONDS = 5.0  # between words about games that are being played
BAR = 20  # characters of the longest bar in a table


@dataclass(frozen=True)
class Score:
    """One evaluation, and what was evaluated."""

    run: Path
    name: str  # "final", "best" or the name of a checkpoint
    env_steps: int | None  # behind the weights
    evaluation: Evaluation
    seconds: float

    @property
    def row(self) -> dict[str, Any]:
        """As it is written into `evaluations.jsonl`."""
        return self.evaluation.row("eval", self.env_steps)


def kept(run: Path) -> list[Path]:
    """Every checkpoint of a run and its end, in the order of their steps, and then the best."""
    paths = checkpoint.folders_of(run)
    weights = (run / "checkpoints" / name for name in (FINAL, BEST))
    paths += [file for file in weights if file.exists()]
    return paths or [newest(run)[0]]


def score(path: Path, episodes: int, seed: int, trust: bool = False) -> Score:
    """Plays with the weights at `path`: a run, a checkpoint's folder or a weights file."""
    tell = _news(episodes)
    return _timed(path, trust, lambda trained: evaluate(trained, episodes, seed, tell))


def _news(episodes: int) -> Tell:
    """Says now and then, on standard error, how far the games are."""
    due = time.monotonic() + NEWS_SECONDS

    def tell(over: int, moves: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due += NEWS_SECONDS
            say("tianji", f"{over} of {episodes} games are over, after {count_of(moves, 'step')}")

    return tell


def show(path: Path, episodes: int, seed: int, trust: bool = False) -> Score:
    """The same in a window, one game after the other."""
    check(episodes, seed)

    def watch(trained: Trained) -> Evaluation:
        return play(trained, trained.shown_environment(Rendering.WINDOW), episodes, seed)

    return _timed(path, trust, watch)


def _timed(path: Path, trust: bool, played: Callable[[Trained], Evaluation]) -> Score:
    trained = load(path, trust=trust)
    began = time.monotonic()
    evaluation = played(trained)
    seconds = time.monotonic() - began
    name = path.stem if path.is_file() else path.resolve().name
    return Score(run_of(path), name, trained.env_steps, evaluation, seconds)


def append(scored: Score) -> str | None:
    """Adds a row to the run's `evaluations.jsonl`; says why where that cannot be done."""
    try:
        add_row(scored.run, scored.row)
    except OSError as error:
        path = scored.run / FILE
        return f"{path} cannot be written ({error.strerror}): this result is only shown here"
    return None


def describe(scored: Score) -> str:
    """A result in a few plain lines."""
    result = scored.evaluation
    (low, high), n = result.interval, len(result.returns)
    steps = "" if scored.env_steps is None else f", {scored.env_steps:,} steps"
    rate = sum(result.lengths) / max(scored.seconds, 1e-9)
    lines = [
        f"Mean return {number(result.mean)} over {count_of(n, 'game')} without exploration.",
        _line("weights", f"{scored.name}: {result.version:,} updates{steps}"),
        *_won(result),
        _line("return", f"std {number(result.std)}, {_range(result.returns)}"),
        _line("IQM", f"{number(result.iqm)}, 95 % interval {number(low)} to {number(high)}"),
        _line("length", f"mean {number(sum(result.lengths) / n)} steps, {_range(result.lengths)}"),
        _line("time", f"{scored.seconds:.1f} s, {rate:,.0f} steps/s"),
        _line("seed", str(result.seed)),
    ]
    return "\n".join(lines)


def _won(result: Evaluation) -> list[str]:
    """As in `85.0 % (17 of 20), 95 % interval 64.0 to 94.8 %`, in games that can be won."""
    if result.won is None or result.win_interval is None or result.win_ratio is None:
        return []
    low, high = (100 * bound for bound in result.win_interval)
    share = f"{100 * result.win_ratio:.1f} % ({sum(result.won):.0f} of {len(result.won)})"
    return [_line("won", f"{share}, 95 % interval {low:.1f} to {high:.1f} %")]


def table(scores: list[Score], block: str = "#") -> str:
    """Results over the steps of training, with a bar for each IQM."""
    wins = any(scored.evaluation.won is not None for scored in scores)
    head = (
        "weights",
        "steps",
        "updates",
        *("won",) * wins,
        "mean",
        "std",
        "IQM",
        "95 % interval",
        "",
    )
    rows: list[tuple[str, ...]] = [head]
    middles = [scored.evaluation.iqm for scored in scores]
    low, high = min(0.0, *middles), max(middles)
    for scored, middle in zip(scores, middles, strict=True):
        share = (middle - low) / (high - low) if high > low else 0.0
        rows.append((*_cells(scored, wins), block * round(BAR * share)))
    return "\n".join(aligned(rows, left=(0, -1)))


def _cells(scored: Score, wins: bool) -> tuple[str, ...]:
    result = scored.evaluation
    low, high = result.interval
    steps = "?" if scored.env_steps is None else f"{scored.env_steps:,}"
    middle = [number(value) for value in (result.mean, result.std, result.iqm)]
    won = "-" if result.win_ratio is None else f"{100 * result.win_ratio:.1f} %"
    return (
        scored.name,
        steps,
        f"{result.version:,}",
        *(won,) * wins,
        *middle,
        f"{number(low)} to {number(high)}",
    )


def _range(values: tuple[float, ...] | tuple[int, ...]) -> str:
    return f"{number(min(values))} to {number(max(values))}"


def _line(label: str, text: str) -> str:
    return f"  {label:<11}{text}"
