"""MAPPO in the two-step game."""

environment = dict(type="MatrixGameEnv")
exp = dict(train_steps=6_000, stop_return=1e9)
parallel_parameters = dict(actor_cfg=dict(num=1, envs=8))
hyp = dict(lr=3e-3, step_len=15, update_step=4, minibatch=60, ent_coef=0.02)
model = dict(type="MLP", hidden=[16])
agent = dict(type="MAPPO", embryo=dict(type="MAPPOHead", model=model, hyp=hyp))
