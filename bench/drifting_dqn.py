"""DQN with Table 2's values on a task whose cost drifts; `rebalancer.py` runs it."""

environment = dict(type="drifting:Drifting", pace="pace")
exp = dict(stop_return=1e9, train_steps=1_000_000_000)
parallel_parameters = dict(
    global_cfg=dict(replay_ratio=32),
    actor_cfg=dict(num=8, send_size=16),
)
hyp = dict(
    GAMMA=0.99,
    EPSILON=0.02,
    LR=5e-4,
    batch_size=32,
    TARGET_REPLACE_ITER=100,
    warmup_size=32,
    buffer_size=2048,
)
model = dict(type="MLP", hidden=[256, 256], act="relu")
agent = dict(type="DQN", embryo=dict(type="DQNHead", model=model, hyp=hyp))
