"""`tianji export RUN --onnx`: writes a trained policy as a file that other programs run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tianji.cli.common import add_trust

if TYPE_CHECKING:
    from tianji.tools.export import Exported


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `export`."""
    parser.add_argument("run", type=Path, help="folder of a run, or a checkpoint in it")
    parser.add_argument(
        "--onnx", action="store_true", required=True, help="the format, and so far the only one"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the file to write (default: policy.onnx in the run's folder); none is overwritten",
    )
    add_trust(parser)


def run(options: argparse.Namespace) -> int:
    """Exports; returns the exit status."""
    from tianji.tools import export

    print(describe(export.onnx(options.run, options.out, options.trust)))
    return 0


def describe(exported: Exported) -> str:
    """What was written, for people."""
    about = exported.about
    what = f"{about['algorithm']} on {about['environment']}, {int(about['updates']):,} updates"
    lines = [("wrote", f"{exported.path} ({exported.path.stat().st_size / 1000:,.0f} kB)")]
    lines += [("policy", f"{what}, without exploration")]
    lines += [("in", text) for text in exported.inputs]
    lines += [("out", text) for text in exported.outputs]
    lines += [("parity", str(exported.parity))]
    return "\n".join(f"{name:<8}{text}" for name, text in lines)
