"""Runs of an experiment side by side, in processes with cores of their own."""

import json

import benches  # noqa: F401  # makes bench/ importable
import beside
from experiment import Sheet


def test_a_run_beside_others_may_fail_alone(tmp_path, capsys):
    sheet = Sheet(tmp_path, "x", ("what", "number"))
    trials = [
        ({"what": name}, json.loads, (text,))
        for name, text in (("a", '{"number": 1}'), ("b", "{"), ("c", '{"number": 3}'))
    ]
    with sheet:
        beside.conduct_trials(sheet, trials, 1)
    rows = sorted(sheet.rows, key=lambda row: row["what"])
    assert rows == [{"what": "a", "number": 1}, {"what": "c", "number": 3}]
    assert "{'what': 'b'} did not finish: Expecting" in capsys.readouterr().out
