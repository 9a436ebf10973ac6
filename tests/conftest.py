"""What all tests share: one thread per numerical library, property tests without a stopwatch."""

import os
import tempfile

os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="tianji-state-")  # not the user's own secret

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # read once, when numpy and torch load; torch takes it as its own limit

os.environ.pop("COLUMNS", None)  # how wide the terminal is that tests are started from
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of many children compiles us anew

from pathlib import Path  # noqa: E402

import commands  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent

settings.register_profile(
    "tianji",
    deadline=None,  # a busy machine is not a failure
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("tianji")


@pytest.fixture(scope="session")
def root():
    """The repository's folder."""
    return ROOT


@pytest.fixture(scope="session")
def child_env():
    """The environment in which a child process finds this package and uses one thread."""
    return os.environ | {"PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="session")
def eventually():
    """Waits for a condition, and fails at a deadline."""
    return commands.eventually
