"""DQN on the slept task: 50 updates a second at most, for 200 steps."""

environment = dict(type="slept:Slept", seconds=0.02)
exp = dict(stop_return=1e9, train_steps=1_000_000, max_seconds=1.5)
parallel_parameters = dict(
    global_cfg=dict(replay_ratio=2, rebalance=False),
    actor_cfg=dict(num=1, send_size=4, envs=1),
)
hyp = dict(LR=2e-3, GAMMA=0.5, EPSILON=0.01, batch_size=8, warmup_size=8, buffer_size=1024)
model = dict(type="MLP", hidden=[8])
agent = dict(type="slept:OneCoreDQN", embryo=dict(type="DQNHead", model=model, hyp=hyp))
