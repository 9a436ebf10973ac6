"""What came of a plan: prediction and measurement, once the run has settled."""

import json

import pytest
from commands import ROOT
from profiles import plan_for

from tianji.config import load
from tianji.observe.pace import Pace, PaceComparison, Steady
from tianji.strategy.plan.plan_file import compare


@pytest.fixture
def plan():
    return plan_for(load(ROOT / "configs" / "cartpole_dqn.py", []))


def test_rates_are_taken_when_the_run_has_settled():
    steady = Steady()
    assert steady.pace() is None
    for i in range(31):  # a tenth of a second each; warm-up for one second, then ten times as slow
        made = 100 * i if i < 20 else 2_000 + 10 * (i - 20)
        steady.read(i / 10, int(i >= 10), made, 2 * made)
    assert steady.pace() == Pace(pytest.approx(100), pytest.approx(200))


def test_prediction_and_measurement_stand_side_by_side(plan):
    made, learned = plan.prediction.production, plan.prediction.consumption
    found = compare(plan, Pace(made / 1.1, learned / 1.2))
    errors = found.to_json()["error"]
    assert errors["production_per_second"] == pytest.approx(0.1, abs=1e-4)
    assert errors["consumption_per_second"] == pytest.approx(0.2, abs=1e-4)
    assert (
        f"predicted: produced {made:,.0f} steps/s, consumed {learned:,.0f} samples/s"
        in found.sentence()
    )
    measured = f"measured {made / 1.1:,.0f} (9 % less) and {learned / 1.2:,.0f} (17 % less)"
    assert found.sentence().endswith(measured)
    again = PaceComparison.from_json(json.loads(json.dumps(found.to_json())))
    assert again.sentence() == found.sentence()


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (0.58, "(42 % less)"),
        (1.07, "(7 % more)"),
        (1.009, "(as predicted)"),
        (0.991, "(as predicted)"),
        (1.011, "(1 % more)"),
        (2.5, "(150 % more)"),
    ],
)
def test_a_line_says_how_far_the_measurement_is_from_the_prediction(plan, times, words):
    made, learned = plan.prediction.production, plan.prediction.consumption
    said = compare(plan, Pace(times * made, learned)).sentence()
    assert said.endswith(
        f"; measured {times * made:,.0f} {words} and {learned:,.0f} (as predicted)"
    )


def test_what_happens_now_and_then_is_not_nothing():
    slow = PaceComparison("L1A1", Pace(4.2, 0.31), Pace(2.1, 0.31))
    assert slow.sentence() == (
        "L1A1, predicted: produced 4.2 steps/s, consumed 0.31 samples/s; measured 2.1 (50 % less) "
        "and 0.31 (as predicted)"
    )


def test_a_run_that_was_too_short_is_not_compared(plan):
    found = compare(plan, None)
    assert found.to_json()["measured"] is None and found.to_json()["error"] is None
    assert "too short" in PaceComparison.from_json(found.to_json()).sentence()


def test_a_rate_of_zero_has_no_error(plan):
    found = compare(plan, Pace(0.0, 1.0))
    assert found.to_json()["error"]["production_per_second"] is None
    assert "measured 0 (100 % less) and 1 (" in found.sentence()
    none = PaceComparison("L1A1", Pace(0.0, 1.0), Pace(3.0, 1.0))
    assert none.sentence().endswith("measured 3 and 1 (as predicted)")
