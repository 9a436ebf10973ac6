"""Ray: what its actors return goes through its object store."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

from transmission.experiment import Collected, Experiment
from transmission.loops import user_of
from transmission.peers.common import asked, run_alone

MODULE = "transmission.peers.ray_store"
IN_FLIGHT = 2  # samples that each actor has been asked for


def ray(experiment: Experiment) -> Collected:
    """Actors of Ray return samples into its object store; the receiver gets and copies them."""
    return run_alone(MODULE, [], experiment)


def _ray(experiment: Experiment) -> Collected:
    import ray as library  # type: ignore[import-not-found, unused-ignore]  # an extra

    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    library.init(num_cpus=experiment.n_actors + 1, **quiet)
    kind, said = library.remote(_RayActor), experiment.to_json()
    actors = [kind.remote(said) for _ in range(experiment.n_actors)]
    use = user_of(experiment)
    library.get([each.sample.remote() for each in actors for _ in range(experiment.depth)])
    began, busy = time.perf_counter(), 0.0
    asked = {each.sample.remote(): each for each in actors for _ in range(IN_FLIGHT)}
    for i in range(experiment.n_messages):
        [ready], _ = library.wait(list(asked), num_returns=1)
        came = time.perf_counter()
        use(library.get(ready), i)
        busy += time.perf_counter() - came
        each = asked.pop(ready)
        asked[each.sample.remote()] = each
    seconds = time.perf_counter() - began
    library.shutdown()
    return Collected(seconds, receive_seconds=busy / experiment.n_messages)


class _RayActor:
    """Sleeps for the sample time and returns a message."""

    def __init__(self, said: dict[str, Any]) -> None:
        self._experiment = Experiment.from_json(said)
        self._sample = np.ones(self._experiment.message_bytes, np.uint8)

    def sample(self) -> Any:
        """One message."""
        if self._experiment.sample_seconds:
            time.sleep(self._experiment.sample_seconds)
        return self._sample


def main() -> None:
    """The driver of Ray, which receives."""
    experiment, answer, _ = asked()
    answer.write_text(json.dumps(_ray(experiment).to_json()))
