"""IMPALA where two choices are made at once."""

environment = dict(type="echo:Several", kind="discrete")
exp = dict(stop_return=9.5, train_steps=100_000)
parallel_parameters = dict(actor_cfg=dict(num=2, envs=8))
hyp = dict(lr=5e-3, gamma=0.5, step_len=20, batch_size=1)
model = dict(type="MLP", hidden=[32])
agent = dict(type="IMPALA", embryo=dict(type="IMPALAHead", model=model, hyp=hyp))
