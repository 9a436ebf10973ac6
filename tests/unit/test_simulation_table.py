"""What was simulated, in columns and words."""

import pytest
from profiles import profile

from tianji.strategy.simulate.core_layout import Layout
from tianji.strategy.simulate.simulation_text import table
from tianji.strategy.simulate.simulator import simulate

SLOW = profile(step=20.0, envs=1, act=1.0, update=5.0, batch=16, pool=64, warmup=16)


def cells(text):
    """The first row of a table, by its header."""
    head, row, *_ = text.replace("A idle", "A_idle").replace("L idle", "L_idle").splitlines()
    return dict(zip(head.split(), row.replace("1 x 1", "1x1").split(), strict=False))


def test_what_happens_now_and_then_is_not_nothing():
    """A step in 20 s: 0.1 per second of two actors."""
    row = cells(table([simulate(SLOW, Layout(actors=2))]))
    assert [row[name] for name in ("produced/s", "consumed/s")] == ["0.1", "0.1"]
    assert float(row["updates/s"]) == pytest.approx(0.1 / 16, rel=0.05)


def test_the_longest_label_stands_apart_from_its_words():
    notes = table([simulate(SLOW, Layout(actors=2))]).split("\n\n")[1].splitlines()
    assert any(line.startswith("  simulated  one group ") for line in notes)
