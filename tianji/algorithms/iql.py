"""IQL: each agent learns its own value, as if the others were part of the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tianji.algorithms.base import other_default
from tianji.algorithms.qmix import QMIX, QMIXHyp


@dataclass(frozen=True)
class IQLHyp(QMIXHyp):
    """Hyper-parameters of IQL: those of QMIX, without a mixer."""

    name: ClassVar[str] = "IQL"

    mixer: Literal["qmix", "vdn", "none"] = other_default(QMIXHyp, "mixer", "none")


class IQL(QMIX):
    """Independent Q-learning (Tan 1993)."""

    Hyp = IQLHyp
