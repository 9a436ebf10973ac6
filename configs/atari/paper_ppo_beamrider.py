# BeamRider by synchronous PPO with the values of the paper's Table 2.

environment = dict(type="AtariEnv", game="BeamRider")  # all seven classic wrappers
exp = dict(train_steps=10_000_000)

parallel_parameters = dict(
    actor_cfg=dict(num=2, envs=4),  # not in the table
    learner_cfg=dict(num=1, device="auto"),
)

model = dict(type="CNN", hidden=[256])
hyp = dict(
    gamma=0.99,
    gae_lambda=0.95,
    lr=1e-4,
    adam_eps=1e-5,
    step_len=512,  # the table's rollout length
    minibatch=256,  # not in the table, which names no batch: one rollout of each actor
    update_step=10,  # passes over a batch; the table's "target update interval"
    warmup_size=1,
)
agent = dict(type="PPO", embryo=dict(type="PPOHead", model=model, hyp=hyp))
