"""`tianji replay RUN`: trains a recorded run again in one process, bit for bit."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tianji.cli.common import add_trust, refuse_ranks
from tianji.core.wording import count_of

if TYPE_CHECKING:
    from tianji.runs.replay import Replayed

TELL_SECONDS = 5.0  # from one line about how far it is to the next


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `replay`."""
    parser.add_argument(
        "run", type=Path, metavar="RUN", help="folder of a run of `tianji train --record`"
    )
    add_trust(parser)
    parser.add_argument("--quiet", action="store_true", help="say nothing meanwhile")


def run(options: argparse.Namespace) -> int:
    """Trains again; 0: the same weights came out, 1: they did not, or the record ends early."""
    refuse_ranks("replay")
    from tianji.machine.resources import Share

    os.environ |= Share((), 1).environment()  # an actor's; a learner's threads are recorded
    from tianji.core import terminal
    from tianji.core.columns import wrapped
    from tianji.engines.replay import Left
    from tianji.runs import replay

    told = time.monotonic()

    def tell(updates: int) -> None:
        nonlocal told
        if not options.quiet and time.monotonic() - told > TELL_SECONDS:
            told = time.monotonic()
            print(f"  {updates:,} updates", file=sys.stderr, flush=True)

    try:
        replayed = replay.replay(options.run, tell, options.trust)
    except Left as left:
        terminal.say("tianji", str(left))
        return 1
    print("\n".join(wrapped(describe(replayed), terminal.width())))
    return replayed.exit_status


def describe(replayed: Replayed) -> str:
    """What came of it, in a sentence or two."""
    followed = replayed.followed
    done = f"{count_of(followed.steps, 'step')} and {count_of(followed.updates, 'update')}"
    same = f"every trajectory and all checksums of the weights ({followed.checks:,}) are the same"
    if replayed.final:
        same += ", and so are the weights that the run ended with, bit for bit"
    if followed.missing:
        return f"Repeated {done}, not the whole run: {followed.missing}. So far {same}."
    return f"Repeated {done}: {same}."
