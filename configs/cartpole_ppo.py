"""PPO balances a pole: the run of `make train`. Every key is explained in docs/config.md."""

environment = dict(type="GymEnv", gym_name="CartPole-v1")

# Training ends when the last 100 episodes return 475 on average, or after so many steps.
exp = dict(stop_return=475, train_steps=500_000, seed=0)

# Who works: one actor that steps 64 environments at once, one learner.
parallel_parameters = dict(
    learner_cfg=dict(num=1),
    actor_cfg=dict(num=1, envs=64),
)

hyp = dict(
    lr=0.01,
    lr_decay=150,  # updates over which lr falls to lr_final, so that what is learned is kept
    lr_final=0.001,
    gamma=0.98,  # how much a reward one step later is worth
    gae_lambda=0.95,
    clip_param=0.2,
    step_len=32,  # steps of each environment in a trajectory: 64 x 32 samples per update
    minibatch=1024,  # samples per gradient step
    update_step=3,  # passes over the samples
)

model = dict(type="MLP", hidden=[64, 64], act="tanh")

embryo = dict(type="PPOHead", model=model, hyp=hyp)
agent = dict(type="PPO", embryo=embryo)
