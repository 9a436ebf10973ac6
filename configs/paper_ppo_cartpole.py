"""PPO on CartPole with the values of the paper's Table 2."""

environment = dict(type="GymEnv", gym_name="CartPole-v1")
exp = dict(stop_return=475, train_steps=2_000_000, seed=0)

actors = 2
rollout = 512  # Table 2: rollout length

parallel_parameters = dict(
    learner_cfg=dict(num=1),
    actor_cfg=dict(num=actors),
)

hyp = dict(
    gamma=0.99,
    gae_lambda=0.95,
    lr=1e-4,
    adam_eps=1e-5,
    step_len=rollout,
    batch_size=actors,  # the table names no batch: one rollout of each actor
    minibatch=256,
    update_step=10,  # passes over a batch; the table's "target update interval"
    warmup_size=1,
    buffer_size=actors,  # as much as one batch
)

model = dict(type="MLP", hidden=[256, 256], act="tanh")
embryo = dict(type="PPOHead", model=model, hyp=hyp)
agent = dict(type="PPO", embryo=embryo)
