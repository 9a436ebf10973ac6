"""IMPALA on Catch: pixels, two frames."""

environment = dict(type="Catch", kwargs=dict(size=12))
exp = dict(stop_return=0.9, train_steps=400_000)
parallel_parameters = dict(actor_cfg=dict(num=2, envs=16))
hyp = dict(lr=2e-3, gamma=0.95, step_len=20, batch_size=1, ent_coef=0.01)
model = dict(type="CNN", convs=[(16, 4, 2), (32, 3, 1)], hidden=[64], precision="float32")
agent = dict(type="IMPALA", embryo=dict(type="IMPALAHead", model=model, hyp=hyp))
