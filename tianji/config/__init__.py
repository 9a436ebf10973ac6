"""Configuration: one Python-looking file per experiment, read but not executed, checked, frozen.

config = load("configs/cartpole_ppo.py", overrides=("hyp.lr=0.001",))
hyp = bind(algorithm.Hyp, config.hyp)
"""

from tianji.config.binder import REQUIRED, bind, key
from tianji.config.keys import Config, from_json
from tianji.config.loader import load, reload
from tianji.config.section import Section

__all__ = ["REQUIRED", "Config", "Section", "bind", "from_json", "key", "load", "reload"]
