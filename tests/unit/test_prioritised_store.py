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
