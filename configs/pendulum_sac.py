"""SAC swings a pendulum up and holds it there. Every key is explained in docs/config.md."""

environment = dict(type="GymEnv", gym_name="Pendulum-v1")

# Training ends when the last 100 episodes return -200 on average, or after so many steps.
exp = dict(stop_return=-200, train_steps=200_000, seed=0)

# One actor that steps 16 environments at once; an update of 128 samples for every 8 steps.
parallel_parameters = dict(
    global_cfg=dict(replay_ratio=16),
    learner_cfg=dict(num=1),
    actor_cfg=dict(num=1, envs=16, send_size=4),
)

hyp = dict(
    LR=2e-3,
    GAMMA=0.97,
    tau=0.02,  # how fast the target critics follow
    batch_size=128,
    buffer_size=50_000,
    warmup_size=1000,  # steps at random before the first update
)

model = dict(type="MLP", hidden=[64, 64])

embryo = dict(type="SACHead", model=model, hyp=hyp)
agent = dict(type="SAC", embryo=embryo)
