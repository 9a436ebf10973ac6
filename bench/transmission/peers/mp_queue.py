"""One queue of Python's own `multiprocessing` for all actors."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable
from typing import Any

from tianji.core.channel import Message
from transmission.child import die_with_parent
from transmission.experiment import Collected, Experiment
from transmission.loops import ActorEnds, Numbers, ReceiverEnds, collect, produce
from transmission.peers.common import Naps, asked, message, nothing, run_alone

MODULE = "transmission.peers.mp_queue"


def mp_queue(experiment: Experiment) -> Collected:
    """One queue of Python's own library for all actors."""
    return run_alone(MODULE, [], experiment)


def _queue(experiment: Experiment) -> Collected:
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    samples = context.Queue(experiment.depth * experiment.n_actors)
    reports, go, stop = context.Queue(), context.Event(), context.Event()
    given = (experiment.to_json(), samples, reports, go, stop)
    actors = [
        context.Process(target=_queue_actor, args=given, daemon=True)
        for _ in range(experiment.n_actors)
    ]
    for each in actors:
        each.start()
    naps = Naps(experiment.n_actors + 1)
    heard = [_taker(reports)] * experiment.n_actors
    found = collect(
        ReceiverEnds(naps, [_taker(samples)], heard, go.set, stop.set), experiment, nothing
    )
    for each in actors:
        each.kill()  # their feeder threads may be stuck on a full pipe
    return found


def _taker(source: Any) -> Callable[[], Message | None]:
    """What takes the next of a queue, if there is one."""

    def take() -> Message | None:
        try:
            return message(*source.get_nowait())
        except queue.Empty:
            return None

    return take


def _queue_actor(said: dict[str, Any], samples: Any, reports: Any, go: Any, stop: Any) -> None:
    die_with_parent()
    experiment = Experiment.from_json(said)

    def send(sample: Any, number: int) -> bool:
        try:
            samples.put_nowait((number, sample))
        except queue.Full:
            return False
        return True

    def report(numbers: Numbers) -> bool:
        reports.put((0, numbers))
        return True

    ends = ActorEnds(Naps(experiment.n_actors + 1), send, go.is_set, stop.is_set, report)
    produce(ends, experiment)


def main() -> None:
    """The receiver."""
    experiment, answer, _ = asked()
    answer.write_text(json.dumps(_queue(experiment).to_json()))
