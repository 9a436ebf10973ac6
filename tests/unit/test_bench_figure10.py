"""Figure 10 and the lockstep bench: what their tables say of runs."""

import math

import benches  # noqa: F401
import figure10
import lockstep
from curves import Training


def training(won):
    """A run with an evaluation every 10 seconds and 1,000 steps, among rows without any."""
    rows = []
    for i, share in enumerate(won, 1):
        row = {"time/time_elapsed": 10.0 * i, "env_steps": 1000 * i}
        rows += [row, row | {figure10.WON: share}]
    summary = {"env_steps": 9000, "production_per_second": 5.0, "consumption_per_second": 7.0}
    return Training(summary, rows)


def row(system, won, seed=1):
    return figure10.row_of(training(won)) | {"map": "3m", "system": system, "seed": seed}


def test_a_run_says_when_it_first_won_often_enough():
    found = row("QMIX", [0.1, 0.75, 0.6, 0.95, 0.8])
    assert (found["best"], found["last"]) == (0.95, 0.8)
    assert (found["seconds_70"], found["steps_70"]) == (20, 2000)
    assert (found["seconds_90"], found["steps_90"]) == (40, 4000)
    assert row("QMIX", [0.1, 0.8])["seconds_90"] == math.inf
    assert math.isnan(row("QMIX", [])["best"])


def test_distributed_runs_stand_beside_serial_ones():
    rows = [row("QMIX", [0.1, 0.95]), row("QMIX serial", [0.1, 0.1, 0.2, 0.92])]
    text = figure10.table(rows, 180.0)
    assert "| 3m (SMAX) | QMIX | 1 |" in text and "which is not SMAC" in text
    assert "3m: QMIX distributed took 0.50 of the serial time to 0.9." in text
    rows[0] = row("QMIX", [0.1, 0.75])
    assert "0.50 of the serial time to 0.7" in figure10.table(rows, 180.0)
    assert figure10.verdict(rows[:1], "3m") == ""


def test_the_curves_of_a_figure_are_over_seconds_and_over_steps():
    over_seconds, over_steps = figure10.panels([row("QMIX", [0.1, 0.95])])
    assert over_seconds.title == over_steps.title == "3m (SMAX)"
    assert over_seconds.lines["QMIX"][-1][0] == 20 and over_steps.lines["QMIX"][-1][0] == 2000


def test_processes_stand_beside_the_serial_loop_and_lockstep():
    rates = {"processes": 600.0, "serial": 300.0, "lockstep": 100.0}
    rows = [
        {"task": "smax", "system": name, "steps_per_second": rate, "samples_per_second": 4 * rate}
        for name, rate in rates.items()
    ]
    text = lockstep.table(rows)
    assert "smax, steps per second: 6.0 times those of lockstep (asked: 5)." in text
    assert "smax, samples per second: 2.0 times those of serial." in text
