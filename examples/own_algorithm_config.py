"""An algorithm of one's own: own_algorithm.py, which lies beside this file, balances a pole."""

environment = dict(type="GymEnv", gym_name="CartPole-v1")
exp = dict(stop_return=200, train_steps=500_000)
parallel_parameters = dict(actor_cfg=dict(num=1, envs=32))

hyp = dict(lr=5e-3, step_len=16)  # the keys of own_algorithm.Hyp
model = dict(type="MLP", hidden=[64, 64], act="tanh")
agent = dict(type="own_algorithm:A2C", embryo=dict(model=model, hyp=hyp))
