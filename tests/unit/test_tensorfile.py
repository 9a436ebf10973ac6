"""Files of state: they come back as they were, other programs read them, and no bytes break us."""

import json

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from tianji.core.errors import TianJiError
from tianji.core.state import split
from tianji.core.tensorfile import CHUNK_BYTES, DTYPES, Corrupt, chunks, read

STATE = {
    "version": 7,
    "weights": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3),
    "random": {"bit_generator": "PCG64", "state": {"state": 2**127 + 1, "inc": -(2**90)}},
    "log": [np.array([1, 2], np.int64), {"pending": [[0.5, 3, 1e300], None]}],
    "nothing": None,
    "flags": np.array([True, False, True]),
}


def written(state):
    return b"".join(chunks(state))


def back(path, data):
    path.write_bytes(data)
    return read(path)


def same(one, two):
    """Whether two states are equal, arrays with their types and shapes."""
    (ours, facts), (theirs, others) = split(one), split(two)
    assert facts == others
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        assert (array.dtype, array.shape) == (theirs[name].dtype, theirs[name].shape), name
        assert array.tobytes() == theirs[name].tobytes(), name
    return True


@pytest.fixture
def path(tmp_path):
    return tmp_path / "part.safetensors"


def test_a_state_comes_back_as_it_was_written(path):
    assert same(back(path, written(STATE)), STATE)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_comes_back_bit_for_bit(path, dtype):
    random = np.random.default_rng(1)
    raw = random.integers(0, 256, 24 * np.dtype(dtype).itemsize, np.uint8)
    array = (raw % 2 if dtype == "bool" else raw).view(dtype).reshape(2, 3, 4)
    shapes = {"whole": array, "none": array[:0], "one": array[0, 0, 0:1].reshape(())}
    assert same(back(path, written(shapes)), shapes)
    theirs = safetensors.numpy.load_file(path)
    assert {name: a.tobytes() for name, a in theirs.items()} == {
        name: a.tobytes() for name, a in shapes.items()
    }


def test_the_librarys_own_reader_gives_the_same_arrays(path):
    path.write_bytes(written(STATE))
    ours, theirs = split(STATE)[0], safetensors.numpy.load_file(path)
    assert ours.keys() == theirs.keys()
    assert all(same({"a": ours[name]}, {"a": theirs[name]}) for name in ours)


def test_a_state_without_arrays_is_a_file_too(path):
    assert back(path, written({"n": 3})) == {"n": 3}
    assert back(path, written({})) == {}
    assert safetensors.numpy.load_file(path) == {}


def test_arrays_lie_aligned_whatever_their_number_and_types(path):
    state = {f"{n}": np.arange(n).astype(d) for n, d in enumerate(("bool", "f8", "i2", "f4", "u1"))}
    arrays = split(back(path, written(state)))[0]
    assert all(array.ctypes.data % array.itemsize == 0 for array in arrays.values() if array.size)
    assert same(read(path), state)


def test_views_and_other_byte_orders_are_written_as_their_values(path):
    grid = np.arange(24, dtype=np.float32).reshape(4, 6)
    state = {"columns": grid[:, ::2], "turned": grid.T, "foreign": grid.astype(">f4")}
    found = back(path, written(state))
    assert all(np.array_equal(found[name], array) for name, array in state.items())


def test_a_large_array_is_written_in_pieces_and_not_copied(path):
    large = np.arange(CHUNK_BYTES // 4 * 2 + 5, dtype=np.float32)
    pieces = list(chunks({"large": large}))
    assert [len(piece) for piece in pieces[1:]] == [CHUNK_BYTES, CHUNK_BYTES, 20]
    assert np.shares_memory(np.frombuffer(pieces[1], np.float32), large)
    assert same(back(path, b"".join(pieces)), {"large": large})


def test_what_is_read_is_for_reading(path):
    found = back(path, written(STATE))["weights"]
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


@pytest.mark.parametrize("dtype", ["complex128", "longdouble", "M8[s]", "U3"])
def test_a_type_that_the_format_has_not_is_named(dtype):
    with pytest.raises(TianJiError, match=r"state 'env/x': an array of .* cannot be saved"):
        list(chunks({"env": {"x": np.zeros(3, dtype)}}))


def test_names_that_would_be_one_are_refused():
    both = {"a/b": np.zeros(1), "a": {"b": np.ones(1)}}
    with pytest.raises(TianJiError, match=r"state 'a/b': two arrays have this name"):
        list(chunks(both))


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | arrays_of.arrays(
        st.sampled_from(sorted(DTYPES)), arrays_of.array_shapes(min_dims=0, min_side=0, max_side=3)
    )
)
names = st.text(st.characters(exclude_characters="/", codec="utf-8"), min_size=1, max_size=5)
states = st.dictionaries(
    names,
    st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(names, inner)),
    max_size=4,
)


@given(states)
def test_any_state_comes_back(tmp_path_factory, state):
    assert same(back(tmp_path_factory.getbasetemp() / "part", written(state)), state)


def harmless(path, data):
    """Whatever the bytes, there is a state or an error of ours."""
    try:
        found = back(path, data)
    except TianJiError as error:
        assert isinstance(error, Corrupt) and str(path) in str(error)
    else:
        assert isinstance(found, dict)
        for array in split(found)[0].values():
            array.tobytes()


def test_every_truncation_gives_an_error(path):
    data = written(STATE)
    for length in range(len(data)):
        with pytest.raises(Corrupt):
            back(path, data[:length])


def test_no_changed_byte_breaks_the_reader(path):
    data = bytearray(written(STATE))
    for place in range(len(data)):
        for change in (0x01, 0x80):
            data[place] ^= change
            harmless(path, bytes(data))
            data[place] ^= change


@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(tmp_path_factory, data):
    harmless(tmp_path_factory.getbasetemp() / "part", data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["F32", "U8", "x"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=3),
)
sizes = st.integers(-3, 9) | st.sampled_from([2**31, 2**62, 2**63, 2**64, -(2**63), 10**400])
entry = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(sorted(DTYPES.values())) | json_values,
        "shape": st.lists(sizes, max_size=3) | json_values,
        "data_offsets": st.lists(sizes, min_size=2, max_size=2) | json_values,
    }
)


@settings(max_examples=400)
@given(
    st.dictionaries(names, entry | json_values, max_size=2),
    json_values,
    st.binary(max_size=16),
)
def test_no_header_breaks_the_reader(tmp_path_factory, entries, facts, data):
    about = {"__metadata__": {"facts": json.dumps(facts)}}
    header = json.dumps(entries | about).encode()
    file = tmp_path_factory.getbasetemp() / "part"
    harmless(file, len(header).to_bytes(8, "little") + header + data)


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"__metadata__": {"facts": "[[[["}}', b"null"])
def test_a_header_that_is_no_header_is_refused(path, text):
    with pytest.raises(Corrupt, match="its header is not readable"):
        back(path, len(text).to_bytes(8, "little") + text)
