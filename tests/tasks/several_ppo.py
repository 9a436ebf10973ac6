"""PPO where two choices are made at once."""

environment = dict(type="echo:Several", kind="discrete")
exp = dict(stop_return=9.5, train_steps=100_000)
parallel_parameters = dict(actor_cfg=dict(num=2, envs=8))
hyp = dict(lr=5e-3, gamma=0.5, step_len=32, minibatch=128, update_step=4)
model = dict(type="MLP", hidden=[32])
agent = dict(type="PPO", embryo=dict(type="PPOHead", model=model, hyp=hyp))
