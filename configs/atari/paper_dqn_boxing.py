# Boxing by DQN with the values of the paper's Table 2, column DQN(Atari).

environment = dict(type="AtariEnv", game="Boxing")  # all seven classic wrappers
exp = dict(train_steps=10_000_000)

parallel_parameters = dict(
    actor_cfg=dict(num=1, envs=8, send_size=16),  # Table 2: rollout length
    learner_cfg=dict(num=1, device="auto"),
)

model = dict(type="CNN", hidden=[512])
hyp = dict(
    gamma=0.99,
    epsilon=0.02,  # the table gives the share of greedy actions, 0.98
    lr=2.5e-5,
    adam_eps=1e-8,
    target_replace_iter=64,
    warmup_size=625,
    buffer_size=25_000,
    batch_size=32,  # not in the table: the paper's Figure 7
    max_decay_step=100_000,  # not in the table
)
agent = dict(type="DQN", embryo=dict(type="DQNHead", model=model, hyp=hyp))
