"""The soak's verdict: flat is what does not grow, whatever comes and goes meanwhile."""

import benches  # noqa: F401
import pytest
import soak

MIB = 2**20


def usage(at, memory=200 * MIB, files=50, threads=12, segments=9):
    values = dict(at=at, memory_bytes=memory, open_files=files, threads=threads)
    return values | dict(segments=segments)


def is_flat(kind, usages):
    return soak.row(kind, usages)[1]


@pytest.mark.parametrize("kind", soak.KINDS)
def test_what_stays_is_flat_also_where_a_process_is_away_now_and_then(kind):
    usages = [usage(t) if t % 20 else usage(t, 90 * MIB, 20, 4, 3) for t in range(900)]
    line, flat = soak.row(kind, usages)
    assert flat and line[-1] == "flat" and line[-2] == "+0.00"


def test_memory_that_grows_by_more_than_a_twentieth_is_seen():
    slowly, fast = (
        [usage(t, (200 + rate * t / 3600) * MIB) for t in range(3600)] for rate in (9, 12)
    )
    assert is_flat("memory_bytes", slowly) and not is_flat("memory_bytes", fast)
    assert soak.row("memory_bytes", fast)[0][-3] == "+12.00"


@pytest.mark.parametrize("name", ["files", "threads", "segments"])
def test_two_more_of_anything_are_seen(name):
    kind = "open_files" if name == "files" else name
    grown = [usage(t, **{name: 50 + t / 450}) for t in range(900)]
    assert not is_flat(kind, grown)
