"""PPO that sleeps, in turns: what bench/simulator.py trains."""

environment = dict(type="slow:Slow", seconds=0.002)
exp = dict(stop_return=1e9, train_steps=1_000_000_000)
parallel_parameters = dict(actor_cfg=dict(num=1))
hyp = dict(step_len=32, minibatch=32, update_step=2)
model = dict(type="MLP", hidden=[32])
agent = dict(type="slow:SlowPPO", embryo=dict(type="PPOHead", model=model, hyp=hyp))
