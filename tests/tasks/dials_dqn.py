"""DQN on a game with a Dict of observations and actions that count from 5."""

environment = dict(type="dials:Dials")
exp = dict(stop_return=7.5, train_steps=20_000)
parallel_parameters = dict(
    global_cfg=dict(replay_ratio=8), actor_cfg=dict(num=1, send_size=16, envs=4)
)
hyp = dict(LR=2e-3, GAMMA=0.5, EPSILON=0.01, max_decay_step=1000, warmup_size=64, buffer_size=4096)
model = dict(type="MLP", hidden=[32])
agent = dict(type="DQN", embryo=dict(type="DQNHead", model=model, hyp=hyp))
