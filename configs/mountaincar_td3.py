"""TD3 drives a car out of a valley by noise that lasts. Every key is explained in docs/config.md."""

environment = dict(type="GymEnv", gym_name="MountainCarContinuous-v0")

# Training ends when the last 100 episodes return 90 on average, or after so many steps.
exp = dict(stop_return=90, train_steps=150_000, seed=0)

# One actor that steps 16 environments at once; an update of 128 samples for every 8 steps.
parallel_parameters = dict(
    global_cfg=dict(replay_ratio=16),
    learner_cfg=dict(num=1),
    actor_cfg=dict(num=1, envs=16, send_size=4),
)

hyp = dict(
    LR=1e-3,
    GAMMA=0.99,
    n_step=5,
    noise=0.4,
    noise_kept=0.9,  # actions that change in every step never reach the flag
    tau=0.02,  # how fast the target networks follow
    batch_size=128,
    buffer_size=100_000,
    warmup_size=8_000,  # steps of noise before the first update
    warmup_full_random=False,
)

model = dict(type="MLP", hidden=[64, 64])

embryo = dict(type="TD3Head", model=model, hyp=hyp)
agent = dict(type="TD3", embryo=embryo)
