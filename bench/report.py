"""Measures the report of a run of one hour: how long it takes to build, and how large it is.

The run is made up: a row a second, with sixteen actors. Beside it stands what the live page costs:
the time of one answer to a browser that asks once a second, at the end of that hour.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from options import ROOT, Options, at_least, count

sys.path.insert(0, str(ROOT / "tests"))
from made_runs import evaluation, make, row

ASKED_SECONDS, ASKED_BYTES, ASKED_SHARE = 5.0, 3_000_000, 0.01
POLLS = 60


def built(folder: Path, times: int) -> tuple[float, int]:
    """Median seconds to build the report, its libraries loaded before, and its bytes."""
    from tianji.observe import report

    taken = []
    for _ in range(times):
        began = time.perf_counter()
        path = report.build([folder])
        taken.append(time.perf_counter() - began)
    return statistics.median(taken), path.stat().st_size


def polled(folder: Path, seconds: int, actors: int) -> float:
    """CPU seconds of one answer to the live page, with one new row before each."""
    from tianji.observe.dashboard import PageSource

    (folder / "summary.json").unlink()
    source = PageSource(folder)
    source.data()
    lines = [json.dumps(row(seconds + 1 + i, actors)) + "\n" for i in range(POLLS)]
    began = time.process_time()
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        for line in lines:
            file.write(line)
            file.flush()
            source.data()
    return (time.process_time() - began) / POLLS


def main() -> int:
    parser = Options(__doc__)
    parser.add_argument("--seconds", type=at_least(2), default=3_600, help="length of the run")
    parser.add_argument("--actors", type=count, default=16)
    parser.add_argument("--times", type=count, default=5, help="reports built")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        evaluations = [evaluation(60_000 * i, 8.0 * i) for i in range(1, 61)]
        folder = make(
            Path(temporary) / "hour",
            options.seconds,
            actors=options.actors,
            evaluations=evaluations,
        )
        read = (folder / "metrics.jsonl").stat().st_size
        seconds, size = built(folder, options.times)
        share = polled(folder, options.seconds, options.actors)
    print(f"rows           {options.seconds:,} with {options.actors} actors, {read / 1e6:.1f} MB")
    print(f"report         {seconds:.2f} s  (asked: < {ASKED_SECONDS:g} s)")
    print(f"its size       {size / 1e3:.0f} kB  (asked: < {ASKED_BYTES / 1e3:,.0f} kB)")
    print(f"the live page  {share:.2%} of a core  (asked: < {ASKED_SHARE:.0%})")
    return int(seconds > ASKED_SECONDS or size > ASKED_BYTES or share > ASKED_SHARE)


if __name__ == "__main__":
    sys.exit(main())
