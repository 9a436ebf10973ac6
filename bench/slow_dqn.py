"""DQN that sleeps: what bench/simulator.py trains."""

environment = dict(type="slow:Slow", seconds=0.002)
exp = dict(stop_return=1e9, train_steps=1_000_000_000)
parallel_parameters = dict(
    global_cfg=dict(replay_ratio=4),
    actor_cfg=dict(num=1, send_size=16),
)
hyp = dict(batch_size=32, buffer_size=512, warmup_size=64)
model = dict(type="MLP", hidden=[32])
agent = dict(type="slow:SlowDQN", embryo=dict(type="DQNHead", model=model, hyp=hyp))
