# Distribution
parallel_parameters = dict(
    global_cfg=dict(use_comm_parallel=True, group_num=1),
    learner_cfg=dict(num=1, cores=1, eval=default),
    actor_cfg=dict(num=1, send_size=16),
    buffer_cfg=dict(send_size=16),
)
# Trainning
hyp = dict(LR=0.0005, GAMMA=0.99, EPSILON=0.02, batch_size=32, TARGET_REPLACE_ITER=100)
# Model
model = dict(type="MLP", c1=4, c2=2, dueling=True, act="relu")
embryo = dict(type="DQNHead", model=model, hyp=hyp)
agent = dict(type="DQN", embryo=embryo)
# Environment
environment = dict(type="GymEnv", gym_name="CartPole-v1")
exp = dict(max_step=500)
