"""What the ranks of one run have in common."""

import os

import pytest

from tianji.engines.serve_rank import identity


def test_the_identity_of_a_rank_is_its_words_and_the_files_among_them(tmp_path):
    file = tmp_path / "job.py"
    file.write_text("one")
    first = identity(["train", str(file)])
    assert first["command line"] == ["train", str(file)]
    assert list(first["configuration"]) == [str(file)]
    file.write_text("two")
    assert identity(["train", str(file)]) != first


@pytest.mark.parametrize(
    "hosts", [["--hostfile", "HOSTS"], ["--host=HOSTS", "--hostfile", "other"]], ids=len
)
def test_the_file_with_the_machines_is_nobodys_identity(tmp_path, hosts):
    file = tmp_path / "hosts"
    file.write_text("a slots=2\n")
    words = [word.replace("HOSTS", str(file)) for word in hosts]
    assert identity(["train", *words, "job.py", "--seed", "5"]) == identity(
        ["train", "job.py", "--seed", "5"]
    )


@pytest.mark.parametrize("word", ["x" * 5000, "a\0b", "--set", "/proc/1/mem/x"])
def test_a_word_that_can_be_no_file_is_only_a_word(word):
    assert identity(["train", word])["configuration"] == {}


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_only_a_word(tmp_path):
    file = tmp_path / "job.py"
    file.touch(mode=0)
    assert identity([str(file)])["configuration"] == {}


def test_a_folder_is_only_a_word(tmp_path):
    assert identity([str(tmp_path)])["configuration"] == {}
