"""DQN on wide observations: a batch takes long to make; `rebalancer.py` runs it."""

environment = dict(type="wide:Wide", width=16384)
exp = dict(stop_return=1e9, train_steps=1_000_000_000)
parallel_parameters = dict(
    global_cfg=dict(replay_ratio=64),
    actor_cfg=dict(num=1, send_size=16),
)
hyp = dict(
    GAMMA=0.99,
    EPSILON=0.02,
    LR=5e-4,
    batch_size=256,
    TARGET_REPLACE_ITER=100,
    warmup_size=1_000,
    buffer_size=10_000,
)
model = dict(type="MLP", hidden=[8, 8], act="relu")
agent = dict(type="DQN", embryo=dict(type="DQNHead", model=model, hyp=hyp))
