"""What bench/ratelimit.py says is lower."""

import benches  # noqa: F401  (finds the scripts)
import ratelimit


def rows(way, idle, short, long):
    values = {"learner_idle": idle, "deviation_0.1s": short, "deviation_0.25s": long}
    return [{"way": way, **values}] * 3


def test_the_verdict_names_what_is_lower_with_ours():
    ours, loose = rows("ours, no slack", 0.1, 3.0, 1.5), rows("limiter, loose", 0.2, 9.0, 1.0)
    assert ratelimit.verdict([*ours, *loose]) == (
        "- lower with ours, no slack than with the limiter, loose: idle, deviation over 0.1 s"
    )
    tight, even = rows("limiter, tight", 0.3, 0.5, 0.2), rows("limiter, even", 0.1, 3.0, 1.5)
    assert ratelimit.verdict([*ours, *tight, *even]) == (
        "- lower with ours, no slack than with the limiter, tight: idle; even: nothing"
    )


def test_idle_is_what_updates_leave_and_the_deviation_that_of_windows():
    """A second is left out; then one update of half a second's length in each second."""
    log = ratelimit.Log()
    log.learned = [(float(t), 0.5) for t in range(6)]
    log.acted = [(float(t), 0.25) for t in range(6)]
    log.came = [(0.05 + t / 10, 10.0) for t in range(60)]
    log.went = [(0.07 + t / 10, 40.0) for t in range(60)]
    row = ratelimit.evaluate(log, ratelimit.Costs(n_actors=1))
    assert row["learner_idle"] == 0.5 and row["actor_idle"] == 0.75
    assert row["ratio"] == 4.0 and row["deviation_0.1s"] < 1e-9
    log.went[30:40] = [(moment, 80.0 * (i % 2)) for i, (moment, _) in enumerate(log.went[30:40])]
    assert ratelimit.evaluate(log, ratelimit.Costs(n_actors=1))["deviation_0.1s"] > 10
