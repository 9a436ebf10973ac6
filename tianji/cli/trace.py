"""`tianji trace RUN`: a timeline of what every role did, and who waited for what."""

from __future__ import annotations

import argparse
from pathlib import Path

from tianji.cli.common import TRACE_SECONDS


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `trace`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run with a trace")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="where to write the timeline (default: trace.json in the run's folder); a name that "
        "ends in .gz is compressed",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="S",
        help="of these last seconds (default: of those that `train --trace` was to keep, "
        f"{TRACE_SECONDS:g} unless it was given another number)",
    )


def run(options: argparse.Namespace) -> int:
    """Writes the timeline; prints what it comes to, and where it lies."""
    from tianji.core import atomic_file, terminal
    from tianji.core.columns import wrapped
    from tianji.core.errors import TianJiError
    from tianji.observe.trace import timeline, trace_text
    from tianji.observe.trace import trace_reader as reader

    if options.seconds is not None and not options.seconds > 0:
        raise TianJiError(f"--seconds: want more than 0, got {options.seconds:g}")
    path = options.out or options.run / "trace.json"
    if options.run.is_dir():  # otherwise it is the run that is missing
        atomic_file.refuse_to_lose(path, "--out", timeline.is_timeline, "tianji trace")
    trace = reader.read(options.run, options.seconds)
    for note in trace.notes:
        terminal.say("note", note)
    timeline.save(trace, path)
    width = terminal.width()
    print(trace_text.describe(trace, width))
    print()
    print("\n".join(wrapped(f"{path}: open it at https://ui.perfetto.dev", width, indent=2)))
    return 0
