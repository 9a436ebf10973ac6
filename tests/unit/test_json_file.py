"""Files that others wrote are bounded before they are parsed, and named when they are not ours."""

import os

import pytest

from tianji.core.errors import TianJiError
from tianji.core.json_file import DEEPEST, load_json, read_json

NESTED = '{"a": ' * DEEPEST + "1" + "}" * DEEPEST


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"3", b'{"a": "\xff"}', b"[" * 100_000, f'{{"a": {NESTED}}}'.encode()],
)
def test_what_is_no_object_is_refused_by_name(tmp_path, content):
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(TianJiError, match=r"plan\.json"):
        load_json(path, "a plan")
    assert read_json(path) == {}


def test_an_object_is_read(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(NESTED)
    assert load_json(path) == read_json(path) != {}


def test_what_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text('{"a": 1}')
    with pytest.raises(TianJiError, match="larger than 7 bytes"):
        load_json(path, most_bytes=7)
    assert load_json(path, most_bytes=8) == {"a": 1}


def test_a_pipe_a_folder_and_nothing_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "nowhere"):
        with pytest.raises(TianJiError, match=str(path)):
            load_json(path)
