"""What torch sees of this machine, as JSON: `python -m tianji.models.gpu [free]`.

A process of its own, so that a driver that hangs or crashes takes nobody with it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch


def seen() -> dict[str, Any]:
    """The platform that torch was built for, and the GPUs that it can use."""
    usable = torch.cuda.is_available()
    devices = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    built = (("CUDA", torch.version.cuda), ("ROCm", torch.version.hip))
    return {
        "built_for": next((f"{name} {version}" for name, version in built if version), None),
        "gpus": [f"{each.name}, {each.total_memory / 2**30:.0f} GiB" for each in devices]
        if usable
        else [],
    }


def free() -> dict[str, Any]:
    """The bytes of the first GPU that can still be taken; this process takes some of them."""
    usable = torch.cuda.is_available()
    return {"free_bytes": torch.cuda.mem_get_info()[0] if usable else None}


if __name__ == "__main__":
    print(json.dumps(free() if sys.argv[1:] == ["free"] else seen()))
