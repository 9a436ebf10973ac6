"""Learners of a group that were saved at different moments go on as one."""

import numpy as np
import pytest
from commands import TASKS

from tianji import config
from tianji.core import checkpoint
from tianji.core.counts import Count
from tianji.core.state import copied
from tianji.job import factory
from tianji.job.job import prepare
from tianji.job.wiring import channels_of
from tianji.roles import role_state
from tianji.roles.role_specs import roles_of
from tianji.roles.saving import Saver, order, recall
from tianji.transports.local import LocalTransport


class Stage:
    """Two groups of two learners, in one process and with turns by hand."""

    def __init__(self, *overrides):
        pairs = ("global_cfg.group_num=2", "learner_cfg.num=2", "learner_cfg.send_root_interval=2")
        self.config = config.load(TASKS / "walk_dqn.py", (*pairs, *overrides))
        env = factory.make_env(self.config)
        env.close()
        job = prepare(self.config, env.spec)
        self.transport = LocalTransport(channels_of(job))
        specs = roles_of(self.config)
        self.roles = {spec.name: factory.build(spec, job, self.transport) for spec in specs}

    def turn(self, until=lambda: False, most=5_000):
        for _ in range(most):
            if until():
                return
            for role in self.roles.values():
                if not role.done:
                    role.step()

    def settle(self):
        """Lets learners learn from the batches that they have, and nobody hands out more."""
        learners = [role for name, role in self.roles.items() if name.startswith("learner")]
        while any([role.step() for role in learners]):
            pass
        assert all(role.settled for role in learners)


def sealed(folder, parts, versions):
    place = folder / "checkpoints" / ".writing-1"
    place.mkdir(parents=True)
    for name, part in parts.items():
        checkpoint.write_part(place, name, part)
    about = {"version": versions[0], "updates": sum(versions), "env_steps": 5, "replay": "kept"}
    documents = {"run.json": {}, "config.json": {}}
    return checkpoint.seal(place, folder / "checkpoints" / "0001-step-5", documents, about)


@pytest.fixture
def saved(tmp_path):
    """A checkpoint whose second learners were saved some updates after the first ones."""
    stage = Stage()
    first = stage.roles["learner-0.0"]
    stage.turn(lambda: first.version >= 20)
    stage.settle()
    parts = {name: copied(role_state.state(role)) for name, role in stage.roles.items()}
    versions = [parts[f"learner-{group}.0"]["version"] for group in (0, 1)]
    stage.turn(lambda: first.version >= versions[0] + 5)
    stage.settle()
    for name in ("learner-0.1", "learner-1.1", "buffer-1.0"):
        parts[name] = copied(role_state.state(stage.roles[name]))
    assert parts["learner-0.1"]["version"] > versions[0]
    return sealed(tmp_path, parts, versions), versions


def test_all_learners_of_a_group_take_what_the_first_one_knew(saved):
    found, versions = saved
    stage = Stage()
    for role in stage.roles.values():
        recall(role, found, in_flight=False)
    for group, version in enumerate(versions):
        first, second = (stage.roles[f"learner-{group}.{i}"] for i in (0, 1))
        assert first.version == second.version == version
        assert first.counts[Count.VERSION] == second.counts[Count.VERSION] == version
        states = [learner.algorithm.state() for learner in (first, second)]
        for name in ("parameters", "target"):
            assert states[0][name].tobytes() == states[1][name].tobytes()
        assert states[0]["optimiser"]["mean"].tobytes() == states[1]["optimiser"]["mean"].tobytes()
        assert stage.roles[f"buffer-{group}.0"].handed == version
    assert not stage.roles["reducer-0.0"].came.any()


def test_they_learn_on_together_and_are_fused_again(saved):
    found, versions = saved
    stage = Stage()
    for role in stage.roles.values():
        recall(role, found, in_flight=False)
    fused = stage.roles["reducer-0.0"].fusions
    learners = [role for name, role in stage.roles.items() if name.startswith("learner")]
    stage.turn(lambda: min(role.version for role in learners) > max(versions) + 10)
    stage.settle()
    for group in (0, 1):
        first, second = (stage.roles[f"learner-{group}.{i}"] for i in (0, 1))
        vectors = [role.algorithm.parameters() for role in (first, second)]
        assert first.version == second.version
        assert vectors[0].tobytes() == vectors[1].tobytes()
    assert stage.roles["reducer-0.0"].fusions > fused


def test_with_what_was_in_flight_everyone_takes_what_it_knew_itself(saved):
    found, versions = saved
    stage = Stage()
    recall(stage.roles["learner-0.1"], found, in_flight=True)
    assert stage.roles["learner-0.1"].version > versions[0]


def test_a_learner_is_not_saved_in_the_middle_of_an_update(tmp_path):
    stage = Stage()
    learner = stage.roles["learner-0.0"]
    stage.turn(lambda: learner.version >= 3)
    stage.settle()
    saver = Saver([learner], stage.transport.inbox("orders"), tmp_path)
    while learner.settled:  # its other learner gets no turn
        for name, role in stage.roles.items():
            if name != "learner-0.1" and learner.settled:
                role.step()
    order(stage.transport.outbox("orders"), 1, 1 << 40)
    saver.look()
    assert not list(tmp_path.iterdir())
    while not learner.settled:
        stage.roles["learner-0.1"].step()
        learner.step()
    saver.look()
    saver._thread.join()
    part = checkpoint.read_written(tmp_path / ".writing-1", "learner-0.0")
    assert part["version"] == learner.version
    assert np.isfinite(learner.algorithm.parameters()).all()
