"""A hostfile is read before mpirun starts: each mistake is told with its line."""

import re

import pytest

from tianji.core.errors import TianJiError
from tianji.machine.hostfile import check


@pytest.fixture
def hosts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hosts.txt"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node1 slots=4\n", ["node1"]),
        ("# all\n\na slots=2  # first\nme@b-2.lab slots = 2\n", ["a", "me@b-2.lab"]),
        ("10.0.0.1 slots=3 max_slots=8\nfe80::1 max-slots=1\n", ["10.0.0.1", "fe80::1"]),
        ("node1\n", ["node1"]),
        ("node1\nnode1\nnode2 slots=1\n", ["node1", "node2"]),
        ("node1 port=2222 slots=4\n", ["node1"]),
    ],
)
def test_what_mpirun_understands_is_accepted(hosts, text, names):
    hosts.write_text(text)
    assert check(hosts, 4) == names


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("node1 slots=2\nnode2 slots=two\n", "hosts.txt:2: found 'node2 slots=two', want a host"),
        ("node1 slots=0", "hosts.txt:1: found 'node1 slots=0'"),
        ("", "hosts.txt: found no host, want a host and its places, as in `node1 slots=4`"),
        ("# nobody\n\n", "hosts.txt: found no host"),
        ("a,b", "hosts.txt:1: found 'a,b'"),
        ("localhost 4", "hosts.txt:1: found 'localhost 4'"),
        ("node1:4", "hosts.txt:1: found 'node1:4'"),
        ("a b c", "hosts.txt:1: found 'a b c'"),
        ("node1 slots=2\nnode1 slots=2", "hosts.txt:2: found node1 a second time"),
        (
            "node1 slots=2\n# more\nnode2 slots=1",
            "places on all hosts: 3, ranks of this run: 4",
        ),
        ("\x00", "hosts.txt:1: found"),
        ("\xff", "hosts.txt:1: this line is not UTF-8"),
    ],
)
def test_a_mistake_is_told_with_its_line(hosts, text, words):
    hosts.write_bytes(text.encode("latin-1"))
    with pytest.raises(TianJiError, match=re.escape(words)):
        check(hosts, 4)


def test_a_folder_and_a_file_that_is_not_there_are_named(hosts, tmp_path):
    with pytest.raises(TianJiError, match="this is a folder"):
        check(tmp_path, 4)
    with pytest.raises(TianJiError, match=r"hosts\.txt: there is no such file"):
        check(hosts, 4)
