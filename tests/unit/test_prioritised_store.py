"""Prioritised replay: draws follow priorities, late priorities never land on newer samples."""

import numpy as np
import pytest
from fields import layout_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tianji.core.schema import Field
from tianji.core.store import feedback_schema
from tianji.stores.prioritised import Prioritised, SumTree

T, E = 4, 2
LAYOUT = layout_of(Field("obs", "float32", (1,)), Field("action", "int64"), (), T, E)


def store(capacity=32, batch=16, n_sources=1, **kinds):
    sampling = Prioritised(batch, capacity, 1, **kinds)
    return sampling.build(LAYOUT, n_sources, 0, seed=0), sampling.batch_schema(LAYOUT).empty()


def add(made, first, source=0, valid=True):
    """A trajectory whose action numbers its samples from `first` on."""
    rows = LAYOUT.empty()
    rows["length"][...] = T
    rows["valid"][...] = valid
    rows["action"][...] = first + np.arange(T * E).reshape(T, E)
    made.add(source, rows, 0)


def feed(made, out, priority):
    rows = feedback_schema(len(out["row"])).empty()
    rows["row"][...], rows["generation"][...] = out["row"], out["generation"]
    rows["priority"][...] = priority
    return made.reweigh(rows)


def counts_of(made, out, rounds):
    found = np.zeros(200, int)
    for _ in range(rounds):
        made.draw(out)
        found += np.bincount(out["action"], minlength=200)
    return found


def test_samples_are_drawn_as_often_as_their_priorities_say():
    made, out = store(alpha=0.5)
    for first in range(0, 32, T * E):
        add(made, first)
    for _ in range(60):
        made.draw(out)
        feed(made, out, out["action"] + 1.0)
    expected = np.sqrt(np.arange(32) + 1.0)
    found = counts_of(made, out, 2_000)[:32]
    assert stats.chisquare(found, expected / expected.sum() * found.sum()).pvalue > 0.001


def test_what_nobody_has_learned_from_is_drawn_like_the_largest():
    made, out = store(alpha=1.0)
    add(made, 0)
    made.draw(out)
    feed(made, out, 5.0)
    add(made, T * E)
    found = counts_of(made, out, 500)
    old, new = found[: T * E].sum(), found[T * E : 2 * T * E].sum()
    assert new == pytest.approx(old, rel=0.2)


def test_weights_undo_what_priorities_do():
    made, out = store(alpha=1.0, beta=1.0)
    add(made, 0)
    add(made, T * E)
    for _ in range(40):
        made.draw(out)
        feed(made, out, out["action"] + 1.0)
    made.draw(out)
    product = out["weight"] * (out["action"] + 1.0)
    assert out["weight"].max() == 1.0
    assert product == pytest.approx(product[0], rel=1e-4)


def test_a_late_priority_does_not_land_on_a_newer_sample():
    made, out = store(capacity=T * E * 2)
    add(made, 0)
    made.draw(out)
    drawn = {name: array.copy() for name, array in out.items()}
    for k in range(1, 4):
        add(made, k * T * E)
    before = made._tree.leaves.copy()
    assert feed(made, drawn, 100.0) == len(out["row"])
    assert (made._tree.leaves == before).all()


def test_what_only_reset_is_never_drawn():
    made, out = store()
    add(made, 0, valid=False)
    add(made, T * E)
    assert set(np.flatnonzero(counts_of(made, out, 50))) <= set(range(T * E, 2 * T * E))


def test_what_a_restored_store_forgets_is_never_drawn():
    made, out = store(capacity=32)
    again, _ = store(capacity=32)
    for first in range(0, 32, T * E):
        add(made, first)
    again.restore(made.state())
    again.miss(2 * T * E)
    found = np.flatnonzero(counts_of(again, out, 200))
    assert found.tolist() == list(range(2 * T * E, 4 * T * E))
    late = {name: out[name] for name in ("row", "generation")}
    assert feed(again, late, 1.0) == 0


def test_a_restored_store_draws_on_with_the_same_priorities():
    made, out = store()
    for first in range(0, 24, T * E):
        add(made, first)
    made.draw(out)
    feed(made, out, out["action"] + 1.0)
    other, again = store()
    other.restore(made.state())
    made.draw(out)
    other.draw(again)
    assert (out["action"] == again["action"]).all() and (out["weight"] == again["weight"]).all()


def test_the_bytes_that_are_foretold_are_the_bytes_that_are_taken():
    sampling = Prioritised(4, 64, 1)
    made = sampling.build(LAYOUT, 2, 0, 0)
    arrays = [*made._by_time.values(), made._generation, made._tree._nodes]
    assert sum(a.nbytes for a in arrays) == sampling.n_bytes(LAYOUT, 2, 0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=70), st.randoms(use_true_random=False))
def test_a_tree_finds_the_leaf_where_the_running_sum_passes_the_mark(values, random):
    tree, leaves = SumTree(len(values)), np.array(values)
    order = np.array(random.sample(range(len(values)), len(values)))
    tree.set(order, leaves[order])
    assert tree.total == pytest.approx(leaves.sum())
    if tree.total == 0:
        return
    marks = np.array([random.random() * tree.total for _ in range(20)])
    found = tree.find(marks)
    assert (leaves[found] > 0).all()
    upto = np.cumsum(leaves)
    near = 1e-9 * tree.total
    assert (marks <= upto[found] + near).all()
    assert (marks >= upto[found] - leaves[found] - near).all()


def test_the_sign_of_a_priority_does_not_count():
    made, out = store(alpha=1.0)
    add(made, 0)
    made.draw(out)
    feed(made, out, -3.0)
    assert set(made._tree.leaves[out["row"]]) == {3.0}


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_a_priority_that_is_no_number_counts_like_the_largest(odd):
    made, out = store(alpha=0.5)
    add(made, 0)
    for priority in (9.0, odd):
        made.draw(out)
        feed(made, out, priority)
        assert set(made._tree.leaves[out["row"]]) == {3.0}
    assert np.isfinite(made._tree.total)


def test_a_sample_without_error_can_still_be_drawn():
    made, out = store(alpha=1.0)
    add(made, 0)
    for _ in range(40):
        made.draw(out)
        feed(made, out, 0.0)
    made.draw(out)
    assert made._tree.total > 0 and np.isfinite(out["weight"]).all()


def test_beta_rises_in_a_line_to_one_and_goes_on_where_it_was_restored():
    made, out = store(alpha=1.0, beta=0.4, anneal=4)
    other, _ = store(alpha=1.0, beta=0.4, anneal=4)
    add(made, 0)
    seen = []
    for _ in range(6):
        seen.append(made.beta)
        made.draw(out)
        other.restore(made.state())
        assert other.beta == made.beta
    assert seen == pytest.approx([0.4, 0.55, 0.7, 0.85, 1.0, 1.0])


def test_the_newest_step_keeps_its_priority_when_its_trajectory_goes_on():
    made, out = store(alpha=1.0, batch=64)
    add(made, 0)
    made.draw(out)
    add(made, T * E)  # what is observed first is what was observed last
    assert feed(made, out, 7.0) == 0
    assert np.count_nonzero(made._tree.leaves == 7.0) == T * E


def test_the_last_step_before_a_gap_is_not_drawn_and_its_priority_comes_too_late():
    made, out = store(alpha=1.0, batch=64)
    add(made, 0)
    made.draw(out)
    rows = LAYOUT.empty()
    rows["length"][...], rows["valid"][...] = T, True
    rows["obs"][0] = 5  # not what was observed last
    made.add(0, rows, 0)
    late = np.isin(out["action"], [(T - 1) * E, (T - 1) * E + 1])
    assert feed(made, out, 7.0) == np.count_nonzero(late) > 0
    assert np.count_nonzero(made._tree.leaves == 7.0) == (T - 1) * E


@pytest.mark.parametrize("n_step", [1, 3])
def test_where_a_ring_has_wrapped_around_only_valid_samples_are_drawn(n_step):
    random = np.random.default_rng(0)
    made, out = store(capacity=24, alpha=0.7, n_step=n_step)
    valid = {}
    for first in range(0, 96, T * E):
        rows = LAYOUT.empty()
        rows["length"][...] = T
        rows["valid"][...] = random.random((T, E)) < 0.7
        rows["action"][...] = first + np.arange(T * E).reshape(T, E)
        made.add(0, rows, 0)
        valid |= dict(zip(rows["action"].ravel().tolist(), rows["valid"].ravel(), strict=True))
    expected = [action for action in range(96 - 24, 96) if valid[action]]
    for _ in range(60):
        made.draw(out)
        feed(made, out, 1.0 + out["action"] % 5)
    found = counts_of(made, out, 2_000)
    assert set(np.flatnonzero(found)) == set(expected)
    share = (1.0 + np.array(expected) % 5) ** 0.7
    share *= found.sum() / share.sum()
    assert stats.chisquare(found[expected], share).pvalue > 0.001


def test_the_sum_of_a_million_priorities_is_exact_enough():
    n = 1_000_000
    tree, values = SumTree(n), np.random.default_rng(0).random(n)
    for part in np.array_split(np.arange(n), 7):
        tree.set(part, values[part])
    for k in range(20):  # many small changes do not add up to a drift
        tree.set(np.arange(k * 64, k * 64 + 64), values[k * 64 : k * 64 + 64])
    assert tree.total == pytest.approx(values.sum(), rel=1e-12)
    last = tree.find(np.array([0.0, np.nextafter(tree.total, 0), tree.total]))
    assert last.tolist() == [0, n - 1, n - 1]
