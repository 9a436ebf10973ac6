"""Makes the modules of `bench/` importable, behind everything that the tests have themselves."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BENCH = ROOT / "bench"
sys.path += [str(folder) for folder in (BENCH, BENCH / "jobs") if str(folder) not in sys.path]
