"""IPPO: each agent learns by PPO for itself, as if the others were part of the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tianji.algorithms.base import other_default
from tianji.algorithms.mappo import MAPPO, MAPPOHyp


@dataclass(frozen=True)
class IPPOHyp(MAPPOHyp):
    """Hyper-parameters of IPPO: those of MAPPO, without a central value."""

    name: ClassVar[str] = "IPPO"

    central: bool = other_default(MAPPOHyp, "central", False)


class IPPO(MAPPO):
    """Independent PPO (de Witt et al. 2020)."""

    Hyp = IPPOHyp
