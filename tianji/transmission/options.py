"""From the options of the command line to a plan."""

from __future__ import annotations

import argparse
import dataclasses

from tianji.errors import TianJiError
from tianji.transmission.carriers import chosen
from tianji.transmission.plan import PARTS, PEERS, TRANSPORTS, Plan, quick


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
    return dataclasses.replace(
        plan,
        transports=chosen(options.transports, TRANSPORTS, "--transports"),
        peers=chosen(options.peers, PEERS, "--peers"),
    )
