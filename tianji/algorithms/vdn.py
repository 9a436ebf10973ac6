"""VDN: the sum of the agents' values is the team's (Sunehag et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tianji.algorithms.base import other_default
from tianji.algorithms.qmix import QMIX, QMIXHyp


@dataclass(frozen=True)
class VDNHyp(QMIXHyp):
    """Hyper-parameters of VDN: those of QMIX, with another mixer."""

    name: ClassVar[str] = "VDN"

    mixer: Literal["qmix", "vdn", "none"] = other_default(QMIXHyp, "mixer", "vdn")


class VDN(QMIX):
    """Value decomposition into a sum."""

    Hyp = VDNHyp
