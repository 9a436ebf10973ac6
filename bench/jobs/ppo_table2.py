"""Synchronous PPO on CartPole, Table 2's values, steps with a cost: what actors.py trains."""

environment = dict(
    type="GymEnv", gym_name="sleepy:SleepyCartPole-v1", kwargs=dict(step_seconds=0.0)
)
exp = dict(stop_return=300, train_steps=1_000_000_000, seed=0, save_seconds=None)
parallel_parameters = dict(learner_cfg=dict(num=1), actor_cfg=dict(num=1))

# A batch is one rollout of each actor, as with peers that are given as many environments.
hyp = dict(
    gamma=0.99,
    gae_lambda=0.95,
    lr=1e-4,
    adam_eps=1e-5,
    step_len=512,
    minibatch=256,
    update_step=10,
)

model = dict(type="MLP", hidden=[256, 256], act="tanh")
embryo = dict(type="PPOHead", model=model, hyp=hyp)
agent = dict(type="PPO", embryo=embryo)
