"""DQN with triggers and a transport of one's own: own_trigger.py and own_transport.py."""

environment = dict(type="GymEnv", gym_name="CartPole-v1")
exp = dict(stop_return=100, train_steps=200_000)

parallel_parameters = dict(
    global_cfg=dict(transport="own_transport:CountingTransport", replay_ratio=32),
    learner_cfg=dict(trigger="own_trigger:OftenAtFirst", send_interval=4),
    actor_cfg=dict(trigger="own_trigger:EndOfEpisode", send_size=64),
)

hyp = dict(LR=2e-3, batch_size=64, buffer_size=10_000, warmup_size=500, n_step=3)
model = dict(type="MLP", hidden=[64, 64], act="relu", dueling=True)
agent = dict(type="DQN", embryo=dict(type="DQNHead", model=model, hyp=hyp))
