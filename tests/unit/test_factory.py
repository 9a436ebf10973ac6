"""From a configuration to roles and channels."""

import dataclasses
import json

import pytest

from tianji import config as configs
from tianji.core.channel import Delivery
from tianji.core.env import EnvSpec
from tianji.core.errors import TianJiError
from tianji.core.schema import Field
from tianji.job import factory
from tianji.job.job import from_json as job_from_json
from tianji.job.job import prepare
from tianji.job.wiring import channels_of, is_private, n_bytes_of
from tianji.roles import Actor, Buffer, Learner
from tianji.roles.role_specs import LAUNCHER, Kind, homes_of, roles_of
from tianji.transports.local import LocalTransport

CARTPOLE = EnvSpec(
    (Field("obs", "float32", (4,)),),
    Field("action", "int64"),
    (2,),
    reward_threshold=475.0,
    max_episode_steps=500,
)


@pytest.fixture
def load(root):
    def with_overrides(*overrides, name="cartpole_dqn"):
        return configs.load(root / f"tests/tasks/{name}.py", overrides)

    return with_overrides


@pytest.fixture
def job(load):
    def make(*overrides, name="cartpole_dqn", env=CARTPOLE):
        return prepare(load(*overrides, name=name), env)

    return make


def real_job(config):
    env = factory.make_env(config)
    env.close()
    return prepare(config, env.spec)


ACTORS = "parallel_parameters.actor_cfg.num=3"
OWN_BUFFER = "parallel_parameters.buffer_cfg.cores=1"


def test_a_group_has_one_learner_one_buffer_and_its_actors(load):
    assert [role.name for role in roles_of(load(ACTORS))] == [
        "learner-0.0",
        "buffer-0.0",
        "actor-0.0",
        "actor-0.1",
        "actor-0.2",
    ]


def test_the_buffer_rides_with_the_learner_unless_it_has_cores_of_its_own(load):
    assert homes_of(load())["buffer-0.0"] == "learner-0.0"
    assert homes_of(load(OWN_BUFFER))["buffer-0.0"] == "buffer-0.0"


def test_every_role_lives_somewhere_and_so_does_the_launcher(load):
    homes = homes_of(load(ACTORS))
    assert set(homes) == {role.name for role in roles_of(load(ACTORS))} | {"launcher"}


def test_every_channel_joins_roles_that_exist(job):
    made = job(ACTORS)
    homes = homes_of(made.config)
    specs = channels_of(made)
    assert len({spec.name for spec in specs}) == len(specs)
    assert all({spec.source, *spec.targets, *spec.readers} <= set(homes) for spec in specs)


def test_trajectories_arrive_every_one_and_weights_only_the_latest(job):
    by_name = {spec.name: spec for spec in channels_of(job(ACTORS))}
    weights = by_name["weights 0"]
    assert weights.delivery is Delivery.LATEST
    trajectories = by_name["trajectories actor-0.1"]
    assert trajectories.delivery is Delivery.EVERY
    assert (trajectories.source, trajectories.targets) == ("actor-0.1", ("buffer-0.0",))


def test_only_actors_that_wait_for_weights_are_woken_for_them(job):
    actors = ("actor-0.0", "actor-0.1", "actor-0.2")
    for name, waits in (("cartpole_dqn", False), ("cartpole_ppo", True)):
        made = job(ACTORS, name=name)
        weights = next(spec for spec in channels_of(made) if spec.name == "weights 0")
        assert weights.targets == (actors if waits else ())
        assert {*actors, LAUNCHER} == {*weights.targets, *weights.readers}
        assert not is_private(weights, homes_of(made.config), "learner-0.0")


def test_batches_are_private_where_the_buffer_rides_and_shared_where_it_does_not(job):
    for made, private in ((job(), True), (job(OWN_BUFFER), False)):
        batches = next(spec for spec in channels_of(made) if spec.name == "batches 0.0")
        assert is_private(batches, homes_of(made.config), "learner-0.0") is private


def test_without_slack_an_actor_has_one_trajectory_in_flight(job):
    assert job("parallel_parameters.buffer_cfg.slack=0").depth == 1
    assert job().depth == 2


def test_a_buffer_beside_its_learner_has_what_one_with_a_process_has_unless_it_was_said(job):
    rides, own = job(), job(OWN_BUFFER)
    assert rides.slack == 0 and rides.ahead == own.slack > 0
    assert job("parallel_parameters.buffer_cfg.slack=0").ahead == 0


def test_seeds_of_all_roles_differ_and_follow_the_runs_seed(job):
    made, other = job("exp.seed=1"), job("exp.seed=2")
    kinds = [(kind, index) for kind in Kind for index in range(50)]
    seeds = [made.seed(*key) for key in kinds]
    assert len(set(seeds)) == len(seeds)
    assert seeds == [job("exp.seed=1").seed(*key) for key in kinds]
    assert not set(seeds) & {other.seed(*key) for key in kinds}


@pytest.mark.parametrize(("given", "ratio"), [("serial", 32), ("balanced", 1), (2.5, 2.5)])
def test_the_replay_ratio_has_two_names_and_any_number(job, given, ratio):
    value = repr(given)
    assert job(f"parallel_parameters.global_cfg.replay_ratio={value}").ratio == ratio


def test_on_policy_training_learns_from_each_sample_once(job):
    assert job(name="cartpole_ppo").ratio == 1
    with pytest.raises(TianJiError, match=r"learns from each sample once.*not 3"):
        job("parallel_parameters.global_cfg.replay_ratio=3", name="cartpole_ppo")


def test_the_rollout_length_is_the_algorithms_or_the_actors(job):
    assert job().length == 16
    assert job(name="cartpole_ppo").length == 64


def test_the_target_is_the_configs_or_the_environments_own(job):
    assert job("exp.stop_return=100").stop_return == 100
    assert job("exp.stop_return=None").stop_return == 475


@pytest.mark.parametrize(("key", "what"), [("c1=5", "observations have size 4"),
                                           ("c2=3", "actions have size 2")])  # fmt: skip
def test_sizes_that_the_environment_contradicts_are_refused(job, key, what):
    with pytest.raises(TianJiError, match=f"the environment's {what}"):
        job(f"model.{key}")


def test_a_class_that_is_no_algorithm_is_refused(job):
    with pytest.raises(TianJiError, match="is no subclass of tianji"):
        job("agent.type='tianji.core.balance:Balance'", "agent.embryo=None")


def test_a_job_survives_its_description(job):
    made = job(ACTORS)
    description = json.loads(json.dumps(made.to_json()))
    config = configs.from_json(description["config"])
    again = job_from_json(description, config)
    assert again.task == made.task
    assert channels_of(again) == channels_of(made)
    assert (again.ratio, again.length, again.stop_return) == (32, 16, 475)


def test_every_role_of_a_real_job_can_be_built(load):
    made = real_job(load(ACTORS))
    transport = LocalTransport(channels_of(made))
    roles = [factory.build(spec, made, transport) for spec in roles_of(made.config)]
    assert [type(role) for role in roles] == [Learner, Buffer, Actor, Actor, Actor]
    for role in roles:
        role.close()


def test_environments_of_different_actors_are_seeded_apart(load):
    seeds = ("environment.seed=5", ACTORS)
    made = real_job(load(*seeds))
    transport = LocalTransport(channels_of(made))
    actors = [factory.build(spec, made, transport) for spec in roles_of(made.config)[2:]]
    first = {tuple(actor.obs["obs"].ravel().tolist()) for actor in actors}
    assert len(first) == 3
    for actor in actors:
        actor.close()


def test_another_environment_in_an_actor_is_refused(load):
    made = prepare(load(), dataclasses.replace(CARTPOLE, max_episode_steps=100))
    with pytest.raises(TianJiError, match=r"actor-0.0: its environment has .* the launcher's"):
        factory.build(roles_of(made.config)[2], made, LocalTransport(channels_of(made)))


def test_memory_is_foretold_for_channels_and_store(job):
    small, large = (n_bytes_of(job(f"hyp.buffer_size={n}")) for n in (1_000, 100_000))
    assert small["channels"] == large["channels"] > 0
    assert 90 < large["store"] / small["store"] < 110


def test_the_device_can_be_left_to_the_machine(load):
    made = real_job(load("parallel_parameters.learner_cfg.device='auto'"))
    factory.build(roles_of(made.config)[0], made, LocalTransport(channels_of(made)))
