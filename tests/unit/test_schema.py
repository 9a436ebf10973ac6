"""Typed layouts of flat blocks."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianji.core.errors import TianJiError
from tianji.core.schema import ALIGNMENT, Field, Schema, align

DTYPES = ["bool", "uint8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64"]
SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)
FIELDS = st.builds(Field, st.text("abcdef ", min_size=1), st.sampled_from(DTYPES), SHAPES)
SCHEMAS = st.lists(FIELDS, max_size=5, unique_by=lambda f: f.name).map(lambda f: Schema(tuple(f)))

ROW = Schema((Field("obs", "float32", (4,)), Field("done", "bool")))


def fill(arrays, seed):
    """Random bytes in every array, as far as their dtypes allow."""
    random = np.random.default_rng(seed)
    for array in arrays.values():
        array[...] = random.integers(0, 2, array.shape).astype(array.dtype)
    return arrays


@given(SCHEMAS)
def test_fresh_arrays_have_the_schemas_fields_and_pass_its_check(schema):
    arrays = schema.empty()
    schema.check(arrays)
    assert list(arrays) == [field.name for field in schema.fields]
    assert not any(array.any() for array in arrays.values())


@given(SCHEMAS, st.integers(0, 99))
def test_what_is_written_through_one_view_is_read_through_another(schema, seed):
    block = np.zeros(schema.n_bytes, np.uint8)
    written = fill(schema.view(block), seed)
    for name, array in schema.view(block).items():
        np.testing.assert_array_equal(array, written[name])
        assert array.size == 0 or np.shares_memory(array, block)


@given(SCHEMAS)
def test_fields_do_not_overlap(schema):
    block = np.zeros(schema.n_bytes, np.uint8)
    for value, array in enumerate(schema.view(block).values(), start=1):
        assert not array.view(np.uint8).any() if array.shape else not array
        array[...] = value
    assert all(
        (array == np.asarray(value).astype(array.dtype)).all()
        for value, array in enumerate(schema.view(block).values(), start=1)
    )


@given(SCHEMAS)
def test_every_field_starts_on_a_cache_line(schema):
    assert all(offset % ALIGNMENT == 0 for offset in schema.offsets)
    assert schema.n_bytes % ALIGNMENT == 0
    assert all(a.ctypes.data % ALIGNMENT == 0 for a in schema.empty().values() if a.size)


@given(st.integers(0, 10**6))
def test_align_rounds_up_to_whole_cache_lines(n):
    assert align(n) % ALIGNMENT == 0
    assert 0 <= align(n) - n < ALIGNMENT


@given(SCHEMAS)
def test_a_description_survives_json(schema):
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


@given(SCHEMAS, st.lists(st.integers(0, 4), min_size=1, max_size=2))
def test_stacking_puts_axes_in_front_and_changes_nothing_else(schema, sizes):
    stacked = schema.stacked(*sizes)
    for one, many in zip(schema.fields, stacked.fields, strict=True):
        assert (many.name, many.dtype, many.shape) == (one.name, one.dtype, (*sizes, *one.shape))


def test_rows_of_a_stacked_schema_are_the_schema():
    rows = ROW.stacked(3, 2).empty()
    ROW.check({name: array[1, 0] for name, array in rows.items()})


def test_a_block_that_is_larger_than_needed_is_fine():
    arrays = ROW.view(np.ones(ROW.n_bytes + 100, np.uint8))
    assert arrays["done"].item() is True


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"obs": None}, r"field 'obs' is missing: want float32\[4\]"),
        ({"obs": np.zeros(4)}, r"field 'obs': want float32\[4\], got float64\[4\]"),
        ({"obs": np.zeros(5, "f4")}, r"field 'obs': want float32\[4\], got float32\[5\]"),
        ({"obs": np.zeros((1, 4), "f4")}, r"want float32\[4\], got float32\[1, 4\]"),
        ({"more": np.zeros(1)}, r"unknown field 'more': want \['obs', 'done'\]"),
    ],
)
def test_check_names_the_field_and_both_layouts(change, message):
    arrays = {name: a for name, a in (ROW.empty() | change).items() if a is not None}
    with pytest.raises(TianJiError, match=message):
        ROW.check(arrays)


def test_check_says_where_it_was():
    with pytest.raises(TianJiError, match=r"  \(actor-0.3 -> buffer-0.0\)$"):
        ROW.check({}, "actor-0.3 -> buffer-0.0")


@pytest.mark.parametrize("dtype", ["object", "O", "U3", "S8", "datetime64[s]", "V8"])
def test_what_is_not_a_number_is_refused(dtype):
    with pytest.raises(TianJiError, match=r"field 'x': dtype .* is not a number"):
        Field("x", dtype)


@pytest.mark.parametrize("dtype", ["flaot32", "i3", ""])
def test_what_is_no_dtype_is_refused(dtype):
    with pytest.raises(TianJiError, match=r"field 'x': .* is no numpy dtype"):
        Field("x", dtype)


def test_a_negative_size_is_refused():
    with pytest.raises(TianJiError, match=r"field 'x': shape \(3, -1\) has a negative size"):
        Field("x", "int8", (3, -1))


def test_two_fields_of_one_name_are_refused():
    with pytest.raises(TianJiError, match="field 'x' stands twice"):
        Schema((Field("x", "int8"), Field("y", "int8"), Field("x", "int16")))
