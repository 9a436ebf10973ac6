"""PQN on the echo task."""

environment = dict(type="echo:Echo", n=4)
exp = dict(stop_return=9.5, train_steps=100_000)
parallel_parameters = dict(actor_cfg=dict(num=2, envs=8))
hyp = dict(lr=5e-3, gamma=0.5, step_len=16, minibatch=64, epsilon=0.01, max_decay_step=2_000)
model = dict(type="MLP", hidden=[32])
agent = dict(type="PQN", embryo=dict(type="PQNHead", model=model, hyp=hyp))
