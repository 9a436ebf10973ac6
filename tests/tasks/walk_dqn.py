"""DQN on the walk: its replay wraps round, and epsilon and the learning rate fall all the while."""

environment = dict(type="walk:Walk")
exp = dict(train_steps=3_000, max_step=12)
parallel_parameters = dict(
    global_cfg=dict(replay_ratio=8), actor_cfg=dict(num=1, send_size=16, envs=2)
)
hyp = dict(
    LR=3e-3,
    lr_decay=1_000,
    lr_final=3e-4,
    GAMMA=0.9,
    EPSILON=0.02,
    max_decay_step=2_500,
    warmup_size=100,
    buffer_size=1_024,
    target_replace_iter=30,
    n_step=3,
)
model = dict(type="MLP", hidden=[32], dueling=True)
agent = dict(type="DQN", embryo=dict(type="DQNHead", model=model, hyp=hyp))
