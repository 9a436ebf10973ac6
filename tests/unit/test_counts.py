"""Counters and histograms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianji.core.counts import Count, Histogram, learner_report_schema, report_schema

VALUES = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=200)


def histogram(values):
    made = Histogram()
    made.add(np.array(values, np.int64))
    return made


@given(st.lists(st.integers(0, 63), min_size=1, max_size=200))
def test_small_numbers_are_counted_exactly(values):
    counted = histogram(values)
    assert counted.rows() == [(v, values.count(v)) for v in sorted(set(values))]
    assert counted.mean == pytest.approx(np.mean(values))
    assert counted.maximum == max(values)


@given(VALUES)
def test_every_value_is_counted_once_and_large_ones_within_a_tenth(values):
    counted = histogram(values)
    assert counted.total == len(values)
    assert 0.9 * max(values) <= counted.maximum <= max(values)
    assert 0.9 * np.mean(values) <= counted.mean <= np.mean(values) * (1 + 1e-12)


@given(VALUES, st.sampled_from([0.5, 0.95, 1.0]))
def test_a_percentile_is_the_lower_edge_of_the_bin_it_falls_into(values, share):
    exact = sorted(values)[max(0, int(np.ceil(share * len(values))) - 1)]
    assert 0.9 * exact <= histogram(values).percentile(share) <= exact


@given(VALUES, VALUES)
def test_adding_in_two_parts_is_adding_at_once(first, second):
    counted = histogram(first)
    counted.add(np.array(second, np.int64))
    np.testing.assert_array_equal(counted.bins, histogram(first + second).bins)


def test_beyond_the_last_bin_everything_is_in_the_last_bin():
    counted = histogram([2**40, 2**50])
    assert counted.bins[-1] == 2


def test_an_empty_histogram_is_all_zero():
    assert Histogram().summary() == {"mean": 0.0, "p50": 0.0, "p95": 0.0, "max": 0.0}
    empty = histogram([])
    assert (empty.total, empty.rows()) == (0, [])


def test_edges_grow_by_a_tenth():
    edges = Histogram._EDGES
    assert (np.diff(edges) > 0).all()
    assert (edges[65:] / edges[64:-1] < 1.11).all()


def test_a_report_has_a_place_for_every_count_and_scalar():
    plain, learner = report_schema().empty(), learner_report_schema(("loss", "q_mean")).empty()
    assert list(plain) == ["counts"]
    assert plain["counts"].shape == (len(Count),)
    assert learner["scalars"].shape == (2,)
    assert learner["staleness"].shape == learner["age"].shape == (Histogram.N_BINS,)
    assert "staleness" in learner_report_schema(()).empty()  # of an algorithm that reports nothing


def test_counts_are_numbered_without_gaps():
    assert [int(count) for count in Count] == list(range(len(Count)))
