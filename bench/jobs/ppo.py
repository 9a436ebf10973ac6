"""Asynchronous PPO on CartPole with costs: what table1.py and ablation.py train."""

environment = dict(
    type="GymEnv", gym_name="sleepy:SleepyCartPole-v1", kwargs=dict(step_seconds=0.0)
)
exp = dict(stop_return=300, train_steps=1_000_000_000, seed=0, save_seconds=None)

# A group: one learner, and actors that step 16 environments at once.
parallel_parameters = dict(
    global_cfg=dict(group_num=1),
    learner_cfg=dict(num=1),
    actor_cfg=dict(num=1, envs=16),
)

# The values of configs/cartpole_ppo.py; a batch has the same size whatever the number of actors.
hyp = dict(
    mode="async",
    lr=0.01,
    gamma=0.98,
    gae_lambda=0.95,
    clip_param=0.2,
    step_len=32,
    batch_size=4,  # rollouts of 16 x 32 samples: 2,048 samples per update
    minibatch=1024,
    update_step=3,
    sample_seconds=0.0,
)

model = dict(type="MLP", hidden=[64, 64], act="tanh")
embryo = dict(type="PPOHead", model=model, hyp=hyp)
agent = dict(type="costs:SlowPPO", embryo=embryo)
