"""Numbers as words say them."""

from tianji.core.wording import count_of, duration, number


def test_one_is_no_plural():
    counts = [count_of(n, "core") for n in (0, 1, 2, 1_024)]
    assert counts == ["0 cores", "1 core", "2 cores", "1,024 cores"]


def test_a_duration_has_the_unit_that_suits_it():
    durations = [duration(s) for s in (2.5, 0.0123, 4e-6, 2e-7)]
    assert durations == ["2.5 s", "12.3 ms", "4 us", "0.2 us"]
    assert [duration(s) for s in (0.9994, 0.9996, 999.6e-6)] == ["999 ms", "1 s", "1 ms"]


def test_a_small_number_keeps_three_digits_and_a_large_one_a_tenth():
    shown = [number(value) for value in (0.7371, -4.612, 12.34, 475.72, 500.0, 12_345.6)]
    assert shown == ["0.737", "-4.61", "12.3", "475.7", "500", "12,346"]
    assert [number(value) for value in (float("nan"), float("inf"))] == ["nan", "inf"]
