"""DQN and PPO on stacked frames, with small perceptrons: what carries the frames is the subject."""

import numpy as np
from film import Film, film_spec

from tianji.algorithms.dqn import DQN, EpsilonGreedy
from tianji.algorithms.policies import CategoricalPolicy
from tianji.algorithms.ppo import PPO
from tianji.core.state import random_state, restore_random
from tianji.models.frames import FrameStack, RolloutPlaces, rollout_stacks
from tianji.stores.prioritised import Prioritised

STACK = 3


class PixelEnv(Film):
    """A film whose reward depends on the frame before the newest one."""

    def __init__(self, config=None, n_envs=2, same_step=False):
        super().__init__(film_spec(STACK, n_envs, same_step), 0, None, 0.1)

    def reset(self, seed=None):
        self.random = np.random.default_rng(seed)
        return super().reset()

    def step(self, action):
        step = super().step(action)
        step.reward[:] = action == (self.time // 2) % 2
        return step

    def state(self):
        about = {name: getattr(self, name).copy() for name in ("episode", "time", "over")}
        return {**about, "random": random_state(self.random)}

    def restore(self, state):
        for name in ("episode", "time", "over"):
            getattr(self, name)[:] = state[name]
        restore_random(self.random, state["random"])

    def close(self):
        pass


def stacked(policy):
    """A policy of the package that sees stacks."""

    class Stacked(policy):
        def __init__(self, *given):
            super().__init__(*given)
            self.frames = FrameStack(film_spec(STACK, 2))

        def act(self, obs, first, explore=True):
            return super().act(
                {"obs": as_input(self.frames.see(obs["obs"], first))}, first, explore
            )

        def state(self):
            return {**super().state(), "frames": self.frames.state()}

        def restore(self, state):
            super().restore(state)
            self.frames.restore(state["frames"])

    return Stacked


def as_input(stacks):
    return np.tanh(stacks.reshape(len(stacks), -1).astype(np.float32) / 8)


class PixelDQN(DQN):
    """DQN that learns from drawn stacks."""

    policy = classmethod(lambda cls, *given: stacked(EpsilonGreedy)(*given))

    def updates(self, batch):
        obs = {name: as_input(batch[name]) for name in ("obs", "next_obs")}
        return (yield from super().updates({**batch, **obs}))


class PixelPrioritisedDQN(PixelDQN):
    """Its draws follow priorities, which are made up."""

    @classmethod
    def sampling(cls, task):
        h = task.hyp
        facts = (h.batch_size, h.buffer_size, h.warmup_size, h.gamma, h.n_step, h.updates_per_step)
        return Prioritised(*facts, anneal=50)

    def learn(self, batch):
        scalars = super().learn(batch)
        return {**scalars, "priorities": batch["reward"] - batch["action"] + scalars["loss"]}


class PixelPPO(PPO):
    """PPO that learns from the stacks of its rollouts; they must be what the policy saw."""

    @classmethod
    def policy(cls, task, actor, seed):
        from tianji.algorithms.actor_critic import policy_layout

        return stacked(CategoricalPolicy)(policy_layout(task), task.env, seed)

    def updates(self, batch):
        shape = batch["first"].shape
        obs = as_input(rollout_stacks(batch, RolloutPlaces(batch).all())).reshape(*shape, -1)
        self.check(obs[:, :-1].reshape(-1, obs.shape[-1]), batch)
        return (yield from super().updates({**batch, "obs": obs}))

    def check(self, obs, batch):
        import torch

        actions = torch.from_numpy(batch["action"].ravel())
        logp, _ = self.networks.log_probability(torch.from_numpy(obs), actions)
        error = np.abs(logp.detach().numpy() - batch["logp"].ravel())[batch["valid"].ravel()]
        assert error.max() < 1e-4
