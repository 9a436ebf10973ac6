"""`tianji eval RUN|CHECKPOINT`: whole games with trained weights, and how good they are."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tianji.cli.common import add_trust

if TYPE_CHECKING:
    from tianji.tools.scores import Score


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `eval`."""
    parser.add_argument(
        "path", type=Path, metavar="RUN|CHECKPOINT", help="a run's folder, or a checkpoint of it"
    )
    parser.add_argument(
        "--episodes", type=int, default=20, metavar="N", help="games to play (default: 20)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="seed of the games (default: 0)"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--all", action="store_true", help="every checkpoint of the run, as a table over steps"
    )
    which.add_argument(
        "--best", action="store_true", help="the weights with the best evaluation while training"
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--video", type=Path, metavar="FILE", help="film one game as FILE, .mp4 or .gif"
    )
    shown.add_argument("--render", action="store_true", help="show the games in a window")
    add_trust(parser)
    parser.add_argument("--json", action="store_true", help="print rows of JSON instead of text")


def run(options: argparse.Namespace) -> int:
    """Plays, prints and writes down what came of it."""
    from tianji.core.errors import TianJiError
    from tianji.roles.evaluation import check
    from tianji.runs import trained

    check(options.episodes, options.seed)
    folder, path = trained.run_of(options.path), options.path
    if (options.all or options.best) and folder != path:
        raise TianJiError(f"--all and --best want a run's folder, and {path} is not one")
    if options.all and (options.video or options.render):
        raise TianJiError("--all plays with many weights: name one checkpoint to look at its games")
    if options.all:
        return _all(folder, options)
    if folder == path:
        path, notes = trained.best(folder) if options.best else trained.newest(folder)
        for note in notes:
            print(f"note: {note if options.best else f'left out: {note}'}", file=sys.stderr)
    return _one(path, options)


def _one(path: Path, options: argparse.Namespace) -> int:
    from tianji.tools import scores

    film = _film(path, options)
    play = scores.show if options.render else scores.score
    result = play(path, options.episodes, options.seed, options.trust)
    _print(scores.describe(result), [result], options)
    if film and not options.json:
        print(film)
    return 0


def _film(path: Path, options: argparse.Namespace) -> str | None:
    if options.video is None:
        return None
    from tianji.core.wording import number
    from tianji.runs.trained import load
    from tianji.tools.video import check_file, record

    check_file(options.video)
    game = record(load(path, trust=options.trust), options.video, options.seed)
    came = f"return {number(game.mean)} in {game.lengths[0]:,} steps"
    return f"  {'video':<11}{options.video}: {came}"


def _all(folder: Path, options: argparse.Namespace) -> int:
    from tianji.core.errors import TianJiError
    from tianji.tools import scores

    results = []
    for path in scores.kept(folder):
        try:
            results.append(scores.score(path, options.episodes, options.seed, options.trust))
        except TianJiError as error:
            print(f"note: left out: {error}", file=sys.stderr)
    if not results:
        raise TianJiError(f"{folder}: none of its weights can be played with")
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    _print(scores.table(results, "█" if unicode else "#"), results, options)
    return 0


def _print(text: str, results: list[Score], options: argparse.Namespace) -> None:
    from tianji.tools import scores

    if options.json:
        text = "\n".join(json.dumps(result.row) for result in results)
    for result in results:  # first: who reads what we print may go away
        if note := scores.append(result):
            print(f"note: {note}", file=sys.stderr)
            break  # the same holds for the others
    print(text)
