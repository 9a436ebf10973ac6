"""The roles of the paper's Figure 2: independent loops that owe each other only data.

A role has a `step` that does one bounded piece of work and returns at once: True if it did
something, False if there was nothing to do. It never waits. What it needs may come later; what it
makes may be refused for now; then it says False and an engine decides what to do with the time.

    Actor    acts in its environments, fills a trajectory, pushes it when its trigger fires   ❸ ❹ ❺
    Inference  acts for all actors of a group, if these have environments only, see `inference.py`
    Buffer   takes trajectories while more may be produced, and hands out batches while
             they may be consumed                                                             ❻ ❼
    Learner  learns from each batch and publishes its weights when its trigger fires          ❶ ❷
    Reducer  averages the parameters of several groups, see `reducer.py`

Whoever sees its input closed closes its output and is done. What roles remember: `role_state.py`.
"""

from tianji.roles.actor import Actor
from tianji.roles.buffer import Buffer
from tianji.roles.learner import Learner
from tianji.roles.role import Role

__all__ = ["Actor", "Buffer", "Learner", "Role"]
