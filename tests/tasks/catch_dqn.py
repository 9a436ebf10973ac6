"""DQN on Catch: pixels, two frames."""

environment = dict(type="Catch", kwargs=dict(size=12))
exp = dict(stop_return=0.9, train_steps=400_000)
parallel_parameters = dict(
    global_cfg=dict(replay_ratio=8), actor_cfg=dict(num=1, send_size=8, envs=16)
)
hyp = dict(
    lr=2e-3,
    gamma=0.95,
    n_step=3,
    batch_size=128,
    buffer_size=20_000,
    warmup_size=1_000,
    epsilon=0.02,
    max_decay_step=4_000,
    target_replace_iter=100,
)
model = dict(type="CNN", convs=[(16, 4, 2)], hidden=[64], precision="float32")
agent = dict(type="DQN", embryo=dict(type="DQNHead", model=model, hyp=hyp))
