"""DQN on the drifting task: an update per step, 120 of them a second at most."""

environment = dict(type="drifting:Drifting", pace="pace")
exp = dict(stop_return=1e9, train_steps=1_000_000)
parallel_parameters = dict(
    global_cfg=dict(replay_ratio=32), actor_cfg=dict(num=4, send_size=4, envs=1)
)
hyp = dict(LR=2e-3, GAMMA=0.5, EPSILON=0.01, max_decay_step=1000, warmup_size=64, buffer_size=4096)
model = dict(type="MLP", hidden=[32])
agent = dict(type="drifting:SlowDQN", embryo=dict(type="DQNHead", model=model, hyp=hyp))
