"""PPO on Catch: pixels, two frames."""

environment = dict(type="Catch", kwargs=dict(size=12))
exp = dict(stop_return=0.9, train_steps=400_000)
parallel_parameters = dict(actor_cfg=dict(num=1, envs=32))
hyp = dict(lr=1e-3, gamma=0.95, step_len=32, minibatch=256, update_step=4, ent_coef=0.01)
model = dict(type="CNN", convs=[(16, 4, 2), (32, 3, 1)], hidden=[64], precision="float32")
agent = dict(type="PPO", embryo=dict(type="PPOHead", model=model, hyp=hyp))
