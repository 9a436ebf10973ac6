"""A parallel environment whose episodes follow a script: who dies when, and how it ends."""

from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

N_ACTIONS = 4


@dataclass(frozen=True)
class Script:
    """One episode: each agent's last step, and whether it is terminated there or cut off."""

    lasts: tuple[int, ...]
    cut: tuple[bool, ...]
    absent: tuple[int, ...] = ()  # agents that do not take part at all


class Scripted:
    """Shows (episode, step, agent, action before), forbids one action, and writes a log.

    It conforms to PettingZoo's parallel API without being loaded from there: after the last step
    `agents` is empty, and what it returned is not.
    """

    def __init__(self, scripts, sizes=None, masks="obs", log=None, state=True):
        self.n = len(scripts[0].lasts)
        self.possible_agents = [f"agent_{i}" for i in range(self.n)]
        self.metadata = {"render_modes": [], "name": "scripted"}
        self.render_mode = None
        self.scripts, self.masks, self.has_state = scripts, masks, state
        self.sizes = sizes or [4] * self.n
        self.log, self.episode, self.agents = [] if log is None else log, -1, []
        self._observe = {a: self._space(i) for i, a in enumerate(self.possible_agents)}
        self._act = {a: spaces.Discrete(N_ACTIONS) for a in self.possible_agents}

    unwrapped = property(lambda self: self)

    def _space(self, i):
        box = spaces.Box(-1e6, 1e6, (self.sizes[i],), np.float32)
        if self.masks != "obs":
            return box
        mask = spaces.Box(0, 1, (N_ACTIONS,), np.int8)
        return spaces.Dict({"observation": box, "action_mask": mask})

    def observation_space(self, agent):
        return self._observe[agent]

    def action_space(self, agent):
        return self._act[agent]

    def reset(self, seed=None, options=None):
        self.episode, self.t = self.episode + 1, 0
        script = self.script
        self.agents = [a for i, a in enumerate(self.possible_agents) if i not in script.absent]
        self.before = dict.fromkeys(self.possible_agents, 0)
        return self._all_see(self.agents), self._infos(self.agents)

    @property
    def script(self):
        return self.scripts[self.episode % len(self.scripts)]

    def sees(self, i, t):
        before = np.ravel(self.before[self.possible_agents[i]])[0]
        numbers = [self.episode, t, i, before]
        return np.resize(np.array(numbers, np.float32), self.sizes[i])

    def mask(self, i, t):
        mask = np.ones(N_ACTIONS, np.int8)
        mask[(self.episode + t + i) % N_ACTIONS] = 0
        return mask

    def _all_see(self, agents):
        seen = {}
        for agent in agents:
            i = self.possible_agents.index(agent)
            seen[agent] = self.sees(i, self.t)
            if self.masks == "obs":
                seen[agent] = {"observation": seen[agent], "action_mask": self.mask(i, self.t)}
        return seen

    def _infos(self, agents):
        if self.masks != "info":
            return {agent: {} for agent in agents}
        return {
            a: {"action_mask": self.mask(self.possible_agents.index(a), self.t)} for a in agents
        }

    def step(self, actions):
        assert set(actions) == set(self.agents), (sorted(actions), self.agents)
        playing, script = self.agents, self.script
        for agent, action in actions.items():
            i = self.possible_agents.index(agent)
            assert self.masks is None or self.mask(i, self.t)[action], (agent, action)
        self.t += 1
        self.before.update(actions)
        over = {a: self.t >= script.lasts[self.possible_agents.index(a)] for a in playing}
        cut = {a: script.cut[self.possible_agents.index(a)] for a in playing}
        rewards = {a: float(self.possible_agents.index(a) + self.t / 8) for a in playing}
        self.agents = [a for a in playing if not over[a]]
        self.log.append((self.episode, self.t, tuple(playing), tuple(self.agents), dict(actions)))
        return (
            self._all_see(playing),
            rewards,
            {a: over[a] and not cut[a] for a in playing},
            {a: over[a] and cut[a] for a in playing},
            self._infos(playing),
        )

    def state(self):
        if not self.has_state:
            raise NotImplementedError
        return np.array([self.episode, self.t], np.float32)

    def render(self):
        return np.zeros((2, 3, 3), np.uint8)

    def close(self):
        self.agents = []
