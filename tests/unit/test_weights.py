"""The trained policy survives on disk."""

import numpy as np

from tianji.weights import load_final, save_final


def test_what_was_saved_is_loaded(tmp_path):
    weights = np.arange(5, dtype=np.float32)
    path = save_final(tmp_path, weights, 7, "DQN")
    loaded, version = load_final(tmp_path)
    np.testing.assert_array_equal(loaded, weights)
    assert version == 7
    assert [file.name for file in path.parent.iterdir()] == ["final.safetensors"]
