"""A small task of pixels whose updates are compared between devices; overrides say with what."""

environment = dict(type="Catch", kwargs=dict(size=24))
parallel_parameters = dict(actor_cfg=dict(num=1, envs=8, send_size=16))
model = dict(type="CNN", convs=[(16, 4, 2), (32, 3, 2)], hidden=[64], precision="float32")
agent = dict(type="PPO")
exp = dict(train_steps=2_048, seed=1)
