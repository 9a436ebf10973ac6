"""PQN on Catch: pixels, two frames."""

environment = dict(type="Catch", kwargs=dict(size=12))
exp = dict(stop_return=0.9, train_steps=400_000)
parallel_parameters = dict(actor_cfg=dict(num=1, envs=32))
hyp = dict(
    lr=1e-3,
    gamma=0.95,
    step_len=16,
    minibatch=128,
    update_step=4,
    epsilon=0.02,
    max_decay_step=20_000,
)
model = dict(type="CNN", convs=[(16, 4, 2), (32, 3, 1)], hidden=[64], precision="float32")
agent = dict(type="PQN", embryo=dict(type="PQNHead", model=model, hyp=hyp))
