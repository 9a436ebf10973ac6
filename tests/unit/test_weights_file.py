"""The trained policy survives on disk, or it is said that it did not."""

import json

import numpy as np
import pytest
from safetensors.numpy import save

from tianji.core.errors import TianJiError
from tianji.runs.weights_file import best_merit, read, rewind_evaluations, save_best, save_final

WEIGHTS = np.arange(5, dtype=np.float32)


def test_what_was_saved_is_loaded(tmp_path):
    path = save_final(tmp_path, WEIGHTS, 7, "DQN")
    found = read(path)
    np.testing.assert_array_equal(found.weights, WEIGHTS)
    assert found.version == 7
    assert [file.name for file in path.parent.iterdir()] == ["final.safetensors"]


def test_the_best_is_kept_with_what_it_was_kept_for(tmp_path):
    assert best_merit(tmp_path) is None
    found = read(save_best(tmp_path, WEIGHTS, 7, "DQN", 0.1, 900))
    assert (found.version, found.env_steps, found.score) == (7, 900, 0.1)
    assert best_merit(tmp_path) == (0.0, 0.1)


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_a_score_that_is_no_number_counts_as_none(tmp_path, score):
    save_best(tmp_path, WEIGHTS, 7, "DQN", score, 900)
    assert best_merit(tmp_path) is None


def test_a_damaged_file_is_called_that_in_our_own_words(tmp_path):
    path = save_final(tmp_path, WEIGHTS, 7, "DQN")
    path.write_bytes(b"no safetensors")
    with pytest.raises(TianJiError) as error:
        read(path)
    assert str(error.value) == f"{path} is damaged: it holds no weights of a policy"


def row(of, env_steps):
    return json.dumps({"of": of, "env_steps": env_steps}) + "\n"


def test_what_was_evaluated_in_lost_work_is_set_aside(tmp_path):
    path, lost = tmp_path / "evaluations.jsonl", tmp_path / "evaluations.lost.jsonl"
    kept = row("training", 100) + row("eval", 900) + row("eval", None)
    path.write_text(kept + row("training", 101) + '{"of": "trai\n' + row("training", 900)[:-4])
    save_best(tmp_path, WEIGHTS, 7, "DQN", 0.1, 101)
    for _ in range(2):  # to do it again changes nothing
        rewind_evaluations(tmp_path, 100)
        assert path.read_text() == kept
        assert lost.read_text().splitlines()[0] == row("training", 101).strip()
        assert len(lost.read_text().splitlines()) == 3
        names = sorted(file.name for file in (tmp_path / "checkpoints").iterdir())
        assert names == ["best.before.safetensors"]


def test_what_was_evaluated_before_stays(tmp_path):
    rewind_evaluations(tmp_path, 0)  # there is nothing at all
    (tmp_path / "evaluations.jsonl").write_text(row("training", 100) + row("eval", 900).strip())
    before = (tmp_path / "evaluations.jsonl").read_bytes()
    path = save_best(tmp_path, WEIGHTS, 7, "DQN", 0.1, 100)
    rewind_evaluations(tmp_path, 100)
    assert (tmp_path / "evaluations.jsonl").read_bytes() == before
    assert path.exists() and not (tmp_path / "evaluations.lost.jsonl").exists()


def test_every_changed_byte_is_caught_or_changes_nothing(tmp_path):
    path = save_best(tmp_path, WEIGHTS, 7, "DQN", 0.1, 900)
    whole, caught = path.read_bytes(), 0
    for place in range(len(whole)):
        for change in (1, 0x20, 0x80):
            changed = bytearray(whole)
            changed[place] ^= change
            path.write_bytes(changed)
            try:
                found = read(path)
            except TianJiError as error:
                assert str(path) in str(error)
                caught += 1
            else:
                assert found.weights.tobytes() == WEIGHTS.tobytes()
                assert (found.version, found.env_steps, found.score) == (7, 900, 0.1)
    assert caught > 0.8 * 3 * len(whole)  # what is left is the spaces and quotes around it


def test_a_file_of_version_0_1_is_read_and_one_that_lost_its_checksum_is_not(tmp_path):
    old = {"version": "7", "algorithm": "DQN"}
    path = tmp_path / "final.safetensors"
    path.write_bytes(save({"weights": WEIGHTS}, old))
    assert read(path).version == 7
    path.write_bytes(save({"weights": WEIGHTS}, old | {"sha257": "0"}))
    with pytest.raises(TianJiError, match="holds no weights"):
        read(path)


def test_every_truncation_is_caught(tmp_path):
    path = save_final(tmp_path, WEIGHTS, 7, "DQN")
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(TianJiError, match="holds no weights of a policy"):
            read(path)
