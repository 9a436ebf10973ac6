"""ApeX on the echo task."""

environment = dict(type="echo:Echo", n=4)
exp = dict(stop_return=9.5, train_steps=100_000)
parallel_parameters = dict(
    global_cfg=dict(replay_ratio=8), actor_cfg=dict(num=2, send_size=16, envs=4)
)
hyp = dict(
    lr=2e-3,
    gamma=0.5,
    epsilon=0.1,
    batch_size=32,
    buffer_size=4096,
    warmup_size=64,
    target_replace_iter=100,
)
model = dict(type="MLP", hidden=[32])
agent = dict(type="ApeX", embryo=dict(type="ApeXHead", model=model, hyp=hyp))
