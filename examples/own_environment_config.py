"""PPO on an environment of one's own: own_environment.py, which lies beside this file."""

environment = dict(type="own_environment:Corridor", length=9)  # length goes to Corridor.init
exp = dict(max_step=50, stop_return=0.9, train_steps=200_000)  # 0.96 is the best there is
parallel_parameters = dict(actor_cfg=dict(num=1, envs=16))

hyp = dict(lr=2.5e-3, step_len=32, minibatch=256, update_step=4)
agent = dict(type="PPO", embryo=dict(type="PPOHead", hyp=hyp))
