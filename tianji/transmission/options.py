"""From the options of the command line to a plan."""

from __future__ import annotations

import argparse
import dataclasses

from tianji.core.errors import TianJiError
from tianji.transmission.carriers import chosen
from tianji.transmission.plan import KB, PARTS, PEERS, TRANSPORTS, Plan, quick


def plan_of(options: argparse.Namespace) -> Plan:
    """Raises for names that are not known."""
    parts = chosen(options.parts, PARTS, "--parts")
    plan = quick(parts) if options.quick else Plan(parts)
    if options.samples is not None:
        if options.samples < 1:
            raise TianJiError(f"--samples {options.samples}: want at least 1")
        plan = dataclasses.replace(
            plan,
            samples=options.samples,
            peer_samples=min(plan.peer_samples, options.samples),
            host_samples=min(plan.host_samples, options.samples),
        )
    if options.sizes is not None:
        sizes = tuple(n * KB for n in _numbers(options.sizes, "--sizes"))
        plan = dataclasses.replace(plan, sizes=sizes, peer_sizes=sizes, link_sizes=sizes)
    if options.actors is not None:
        actors = _numbers(options.actors, "--actors")
        plan = dataclasses.replace(plan, actors=actors, host_actors=actors)
    return dataclasses.replace(
        plan,
        transports=chosen(options.transports, TRANSPORTS, "--transports"),
        peers=chosen(options.peers, PEERS, "--peers"),
    )


def _numbers(said: str, option: str) -> tuple[int, ...]:
    words = [word.strip() for word in said.split(",") if word.strip()]
    if not words or not all(word.isdecimal() and int(word) for word in words):
        raise TianJiError(f"{option} {said}: want numbers from 1 with commas, as in 1,4,16")
    return tuple(sorted({int(word) for word in words}))
