"""bench/simulator.py: costs that a run had, and what the simulator makes of them."""

import benches  # noqa: F401  (finds the scripts)
import pytest
import simulator
from profiles import profile

from tianji.strategy.simulate.core_layout import Layout
from tianji.strategy.simulate.simulator import simulate


def summary(seconds=10.0, produced=1_600, updates=400):
    """A run of two actors, each busy for 8 of 10 s; the learner for 6 s and the buffer for 1."""
    return {
        "produced": produced,
        "received": produced,
        "production_per_second": produced / seconds,
        "updates": updates,
        "consumed": updates * 128,
        "roles": {
            "actor-0.0": {"busy": 0.8},
            "actor-0.1": {"busy": 0.8},
            "buffer-0.0": {"busy": 0.1},
            "learner-0.0": {"busy": 0.6},
        },
    }


def test_the_costs_of_a_run_are_the_busy_time_of_its_roles():
    probed = profile(envs=1, step=1e-3, send=1e-3, receive=1e-3, draw=1e-3, load=1e-3)
    found = simulator.as_in(summary(), probed)
    (actor,), (learner,) = found.actors, found.learners
    assert actor.step_seconds == pytest.approx(16.0 / 1_600)
    assert learner.update_seconds == pytest.approx(6.0 / 400)
    assert actor.send_seconds == found.load_seconds == 0.0
    # 100 trajectories and 400 batches took the buffer a second, and the probe said half of it.
    assert actor.receive_seconds == learner.draw_seconds == pytest.approx(2e-3)


def test_a_learner_of_a_run_was_as_slow_as_it_was_beside_its_actors():
    """What the probe says of busy cores is in the run's costs already."""
    quiet, busy = (
        simulator.as_in(summary(), profile(envs=1, receive=1e-3, draw=1e-3, contention=times))
        for times in (1.0, 3.0)
    )
    assert busy.learners[0].contention == 1.0
    layout = Layout(actors=40, envs=1)
    assert simulate(busy, layout).production == simulate(quiet, layout).production
