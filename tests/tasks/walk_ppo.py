"""PPO on the walk, with two actors and a learning rate that falls all the while."""

environment = dict(type="walk:Walk")
exp = dict(train_steps=6_000, max_step=12)
parallel_parameters = dict(actor_cfg=dict(num=2, envs=4))
hyp = dict(
    lr=5e-3, lr_decay=30, lr_final=5e-4, gamma=0.9, step_len=32, minibatch=128, update_step=4
)
model = dict(type="MLP", hidden=[32], act="tanh")
agent = dict(type="PPO", embryo=dict(type="PPOHead", model=model, hyp=hyp))
