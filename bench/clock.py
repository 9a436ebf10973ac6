"""When this process really began, and the line that systems of a comparison end with."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any


def process_age() -> float:
    """Seconds since the kernel started this process, to the kernel's tick (usually 10 ms).

    So interpreter start and imports count.
    """
    after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started = int(after_name[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def print_result(
    system: str,
    solved: bool,
    began: float,
    steps: int,
    options: argparse.Namespace,
    **more: Any,
) -> None:
    """One line of JSON about a run that ends now, with every option."""
    seconds = time.perf_counter() - began
    result = {
        "system": system,
        "solved": solved,
        "seconds_from_process_start": round(process_age(), 3),
        "seconds_from_training_start": round(seconds, 3),
        "env_steps": steps,
        "steps_per_second": round(steps / seconds, 1),
        **more,
        "options": vars(options),
    }
    print(json.dumps(result))
