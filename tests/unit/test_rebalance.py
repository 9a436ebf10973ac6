"""From counters to advice, and from advice to roles that rest."""

import json

import numpy as np
import pytest
from commands import TASKS

from tianji import config
from tianji.core.channel import ChannelSpec, Delivery
from tianji.core.counts import Count
from tianji.engines import run_roles as engine_roles
from tianji.engines import worker_loop
from tianji.engines.worker_loop import Loop
from tianji.job import factory
from tianji.job.advice import Advice, Listener, advice_schema, advise
from tianji.job.job import prepare
from tianji.job.wiring import channels_of
from tianji.machine.resources import idle_seconds
from tianji.observe.summary import describe
from tianji.observe.watch import Progress
from tianji.roles.role_specs import roles_of
from tianji.runs.run import Run
from tianji.strategy.rebalance.rebalancer import FILE, Rebalancer
from tianji.transports.local import LocalTransport


def job_of(*overrides, name="echo_dqn.py"):
    made = config.load(TASKS / name, overrides)
    env = factory.make_env(made)
    env.close()
    return prepare(made, env.spec)


class Engine:
    """Remembers what it was asked to pass on."""

    def __init__(self, name="process"):
        self.name, self.advice, self.n = name, Advice(), 0

    def advise(self, advice):
        self.advice, self.n = advice, self.n + 1

    @property
    def paused(self):
        return self.advice.paused


class Group:
    """Roles that count as if actors made `each` steps/s and learners could use `learner`."""

    def __init__(self, job, folder, engine=None, each=500.0, learner=200.0):
        self.job, self.each, self.learner = job, each, learner
        self.engine, self.told = engine or Engine(), []
        self.rebalancer = Rebalancer(job, folder, self.engine, self.told.append)
        self.progress = Progress({role.name: np.zeros(len(Count)) for role in roles_of(job.config)})
        self.progress.started_at = self.now = 100.0

    def run(self, seconds, step=0.1):
        for _ in range(round(seconds / step)):
            self.now += step
            self.count(step)
            self.rebalancer.tick(self.progress, self.now)
        return self

    def count(self, seconds):
        lost, counts = self.progress.lost, self.progress.counts
        actors = [n for n in counts if n.startswith("actor") and n not in lost]
        awake = [name for name in actors if name not in self.engine.paused]
        used = min(self.learner, self.each * len(awake))
        for name in actors:
            if name not in awake:
                counts[name][Count.PAUSED_SECONDS] += seconds
                continue
            made = used / len(awake)
            counts[name][Count.PRODUCED] += made * seconds
            counts[name][Count.PUSHED] += 2
            counts[name][Count.BUSY_SECONDS] += seconds * made / self.each
            counts[name][Count.IDLE_SECONDS] += seconds * (1 - made / self.each)
        for name in (n for n in counts if n.startswith("learner")):
            busy = used / self.learner
            counts[name][Count.CONSUMED] += used * self.job.ratio * seconds
            counts[name][Count.VERSION] += 2
            counts[name][Count.BUSY_SECONDS] += seconds * busy
            counts[name][Count.IDLE_SECONDS] += seconds * (1 - busy)
        for name in (n for n in counts if n.startswith("buffer")):
            counts[name][Count.IDLE_SECONDS] += seconds * (1 - used / self.learner)

    @property
    def kinds(self):
        return [str(decision["kind"]) for decision in self.told]


class Coarse(Group):
    """The same, but steps are counted when a trajectory is full, and updates come with them."""

    length = 128

    def count(self, seconds):
        counts = self.progress.counts
        before = {name: vector.copy() for name, vector in counts.items()}
        super().count(seconds)
        self.kept = getattr(self, "kept", dict.fromkeys(counts, 0.0))
        for name, vector in counts.items():
            work = Count.PRODUCED if name.startswith("actor") else Count.CONSUMED
            whole = self.length * (1 if work is Count.PRODUCED else self.job.ratio)
            self.kept[name] += vector[work] - before[name][work]
            n, self.kept[name] = divmod(self.kept[name], whole)
            vector[work] = before[name][work] + n * whole
            vector[Count.PUSHED] = before[name][Count.PUSHED] + n
            vector[Count.VERSION] = before[name][Count.VERSION] + n


class Drawing(Group):
    """A core is free, and making batches takes two thirds of what learning from them does."""

    def count(self, seconds):
        apart = "buffer-0.0" in self.engine.advice.apart
        self.learner = 333.0 if apart else 200.0
        super().count(seconds)
        counts = self.progress.counts
        learner, buffer = counts["learner-0.0"], counts["buffer-0.0"]
        learner[Count.FREE_CORES] = 0.1 if apart else 0.9
        buffer[Count.PUSHED] += 2
        busy = 2 / 3 * seconds if apart else 0.4 * seconds
        buffer[Count.BUSY_SECONDS] += busy
        if apart:
            buffer[Count.APART_SECONDS] += busy
        else:
            learner[Count.BUSY_SECONDS] -= busy  # of the time that both share


@pytest.fixture
def begin(tmp_path):
    """Makes groups whose records are closed at the end."""
    made = []

    def make(job, *others, of=Group, **more):
        made.append(of(job, tmp_path, *others, **more))
        return made[-1]

    yield make
    for group in made:
        group.rebalancer.close()


def test_actors_that_nobody_needs_rest_and_are_woken_when_they_are_needed(begin, tmp_path):
    group = begin(job_of("actor_cfg.num=8")).run(40)
    assert len(group.engine.paused) == 7 and set(group.kinds) == {"pause"}
    group.each = 50.0
    group.run(8)
    assert len(group.engine.paused) <= 2 and group.kinds[-1] == "wake"
    group.rebalancer.close()
    rows = [json.loads(line) for line in (tmp_path / FILE).read_text().splitlines()]
    assert [row["kind"] for row in rows] == group.kinds
    assert rows[0]["reading"]["acting"] == pytest.approx(8 * 500.0, rel=0.01)
    assert rows[0]["reading"]["learning"] == pytest.approx(200.0, rel=0.01)
    why = "8 actors could make 4,000 steps/s with a core each, the learner can use 200"
    assert why in rows[0]["why"]


def test_those_who_rest_take_turns_with_those_who_do_not(begin):
    group = begin(job_of("actor_cfg.num=4")).run(30)
    resting, seen = set(group.engine.paused), set()
    for _ in range(8):
        group.run(5)
        assert len(group.engine.paused) == 3
        seen |= set(group.engine.paused)
    assert seen > resting and len(seen) == 4
    made = [group.progress.counts[f"actor-0.{i}"][Count.PRODUCED] for i in range(4)]
    assert min(made) > 0.5 * max(made)


def test_actors_are_woken_also_where_a_reading_takes_longer_than_a_turn(begin):
    job = job_of("actor_cfg.num=8")
    group = begin(job, of=Coarse, each=64.0, learner=150.0).run(200)
    assert 3 <= len(group.engine.paused) <= 5 and set(group.kinds) == {"pause"}
    group.each = 20.0
    group.run(90)  # a few readings, of ten seconds at most
    assert not group.engine.paused and group.kinds[-1] == "wake"


def test_turns_are_taken_also_where_a_reading_takes_longer_than_a_turn(begin):
    group = begin(job_of("actor_cfg.num=4"), of=Coarse, learner=50.0).run(200)
    seen, n = set(group.engine.paused), len(group.told)
    assert len(seen) == 3
    for _ in range(12):
        group.run(10)
        seen |= set(group.engine.paused)
    assert len(seen) == 4 and len(group.told) == n


@pytest.mark.parametrize(
    ("overrides", "name", "engine"),
    [
        (("global_cfg.rebalance=False",), "echo_dqn.py", "process"),
        ((), "echo_dqn.py", "local"),
        ((), "echo_ppo.py", "process"),  # synchronous: every actor owes its share
    ],
)
def test_where_there_is_nothing_to_balance_nobody_is_told_anything(
    begin, tmp_path, overrides, name, engine
):
    job = job_of("actor_cfg.num=4", *overrides, name=name)
    group = begin(job, Engine(engine)).run(40)
    assert not group.told and not group.engine.n and not (tmp_path / FILE).exists()


def test_a_buffer_is_moved_where_that_makes_the_learner_faster(begin):
    group = begin(job_of(), of=Drawing).run(60)
    assert group.engine.advice.apart == ["buffer-0.0"]
    assert [(told["kind"], told["before"], told["after"]) for told in group.told] == [
        ("buffer", 0, 1),
        ("buffer", 1, 1),  # that it stays is said too
    ]
    assert "200 steps/s can be used" in group.told[0]["why"]
    assert group.told[1]["why"] == "333 steps/s can be used with 1, 200 with 0"


@pytest.mark.parametrize("override", ["exp.trace_seconds=1", "buffer_cfg.cores=1"])
def test_a_buffer_stays_that_is_traced_or_has_a_process_of_its_own(begin, override):
    assert "buffer" not in begin(job_of(override), of=Drawing).run(60).kinds


def test_rollouts_of_one_batch_come_from_several_actors(begin):
    options = ("actor_cfg.num=8", "hyp.mode=async", "hyp.batch_size=4")
    group = begin(job_of(*options, name="echo_ppo.py")).run(40)
    assert len(group.engine.paused) == 4


def test_when_the_last_actor_that_is_awake_is_lost_another_is_woken(begin):
    group = begin(job_of("actor_cfg.num=3")).run(30)
    [awake] = {"actor-0.0", "actor-0.1", "actor-0.2"} - set(group.engine.paused)
    group.progress.lost.append(awake)
    group.engine.paused.append(awake)  # it does nothing any more
    group.run(15)
    assert group.kinds[-1] == "wake" and len(group.engine.paused) < 2
    group.progress.lost += ["actor-0.0", "actor-0.1", "actor-0.2"]
    group.run(15)  # nobody is left, and nothing breaks


def test_groups_are_balanced_each_by_itself(begin):
    job = job_of("actor_cfg.num=2", "global_cfg.group_num=2")
    group = begin(job)
    count = group.count

    def only_the_second_has_too_many(seconds):
        count(seconds)
        for name in ("learner-0.0", "buffer-0.0"):
            group.progress.counts[name][Count.IDLE_SECONDS] += seconds

    group.count = only_the_second_has_too_many
    group.run(20)
    assert len(group.engine.paused) == 1 and group.engine.paused[0].startswith("actor-1.")
    assert {decision["group"] for decision in group.told} == {1}


def test_the_summary_repeats_what_was_decided_and_so_does_a_resumed_run(begin, tmp_path, capsys):
    run = Run(job_of("actor_cfg.num=2"), "process", tmp_path, quiet=True)
    group = begin(job_of("actor_cfg.num=2"))
    group.told = None
    group.rebalancer._tell = run.rebalanced
    group.run(15)
    summary = run._summary("running", group.progress, 120.0)
    told = summary["rebalancing"]
    assert "balance    1 decision (balance.jsonl), at last 1 actors awake" in describe(
        summary, tmp_path
    )
    assert [(row["kind"], row["before"], row["after"]) for row in told] == [("pause", 2, 1)]
    assert "tianji: pause 2 -> 1 actors awake: 2 actors could make" in capsys.readouterr().err
    assert run.state(group.progress)["rebalancing"] == told


def test_the_summary_says_what_was_decided_of_which_group(begin, tmp_path):
    run = Run(job_of("actor_cfg.num=2"), "process", tmp_path, quiet=True)
    group = begin(job_of("actor_cfg.num=2"))
    group.run(15)
    summary = run._summary("running", group.progress, 120.0)
    rows = [(1, 4), (0, 2), (1, 3), (3, 2)]
    summary["groups"] = 4
    summary["rebalancing"] = [{"unit": "actors awake", "group": g, "after": n} for g, n in rows]
    assert (
        "4 decisions (balance.jsonl), at last 2 actors awake (group 0, 3), 3 actors awake (group 1)"
    ) in describe(summary, tmp_path)


class Clock:
    def __init__(self):
        self.now = 10.0

    def __call__(self):
        return self.now


def listening(job, home, **more):
    """The roles of one process, and the launcher's end of what they listen to."""
    transport = LocalTransport(channels_of(job))
    everybody = roles_of(job.config)
    roles = [factory.build(r, job, transport) for r in everybody if r.home == home]
    listener = Listener(roles, transport.inbox("advice"), everybody, **more)
    return roles, listener, transport


def test_a_paused_actor_finishes_what_it_has_begun_and_begins_nothing_new():
    job = job_of("actor_cfg.num=2")
    [actor], listener, transport = listening(job, "actor-0.1")
    learner, _, _ = listening(job, "learner-0.0")
    weights = transport.outbox("weights 0")
    weights.push({"weights": learner[0].algorithm.weights()}, 0)
    assert actor.step()
    advise(transport.outbox("advice"), roles_of(job.config), Advice(["actor-0.1"]))
    listener.look()
    assert [actor.step() for _ in range(job.length)] == [True] * (job.length - 1) + [False]
    assert actor.counts[Count.PUSHED] == 1 and not actor.step()
    weights.push({"weights": learner[0].algorithm.weights()}, 7)
    assert not actor.step() and actor.version == 7  # it stays up to date
    advise(transport.outbox("advice"), roles_of(job.config), Advice())
    listener.look()
    assert actor.step()
    advise(transport.outbox("advice"), roles_of(job.config), Advice(["actor-0.0"]))
    listener.look()
    assert not actor.paused
    actor.paused = True
    weights.close()
    actor.step()
    assert actor.done  # a run ends for those who rest too


def test_threads_are_set_when_they_change():
    job, asked = job_of(), []
    roles, listener, transport = listening(job, "learner-0.0", set_threads=asked.append, threads=1)
    counts, outbox = roles[0].counts, transport.outbox("advice")
    assert counts[Count.THREADS] == 1
    for n in (1, 0, 2, 2):
        advise(outbox, roles_of(job.config), Advice(threads={"learner-0.0": n} if n else {}))
        listener.look()
    assert asked == [2] and counts[Count.THREADS] == 2


def test_free_cores_are_those_that_nobody_used(monkeypatch):
    clock, idled = Clock(), iter([100.0, 101.5])
    monkeypatch.setattr("tianji.job.advice.idle_seconds", lambda cores: next(idled))
    roles, listener, _ = listening(job_of(), "learner-0.0", clock=clock, set_threads=print)
    listener.look()
    clock.now += 0.5
    listener.look()  # too soon
    clock.now += 0.5
    listener.look()
    assert roles[0].counts[Count.FREE_CORES] == 1.5


def test_a_learner_whose_threads_cannot_be_set_says_of_no_core_that_it_is_free(monkeypatch):
    clock, idled = Clock(), iter([100.0, 101.5])
    monkeypatch.setattr("tianji.job.advice.idle_seconds", lambda cores: next(idled))
    roles, listener, transport = listening(job_of(), "learner-0.0", clock=clock, threads=1)
    for _ in range(3):
        listener.look()
        clock.now += 1.0
    advise(
        transport.outbox("advice"), roles_of(job_of().config), Advice(threads={"learner-0.0": 2})
    )
    listener.look()
    assert not roles[0].counts[Count.FREE_CORES] and roles[0].counts[Count.THREADS] == 1


@pytest.mark.parametrize(
    ("device", "gpu", "on_cpu"),
    [("cpu", True, True), ("auto", True, False), ("auto", False, True), ("cuda", True, False)],
)
def test_auto_is_the_cpu_where_there_is_no_gpu(monkeypatch, device, gpu, on_cpu):
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    assert engine_roles._on_cpu(job_of(f"learner_cfg.device='{device}'")) is on_cpu


def test_idle_time_is_of_the_cores_asked_for(tmp_path):
    (tmp_path / "stat").write_text(
        "cpu 9 9 9 900 9\ncpu0 1 2 3 400 50 6\ncpu1 1 2 3 300 20 6\ncpu11 1 2 3 999 0 6\nintr 5\n"
    )
    assert idle_seconds((0, 1), tmp_path / "stat") == pytest.approx(7.7, rel=0.01)
    assert idle_seconds((0,), tmp_path / "none") is None
    assert idle_seconds((0,)) > 0


class Ports(LocalTransport):
    """One process whose transport says whether it was told of a sleep."""

    armed = 0

    def __init__(self, specs):
        super().__init__(specs)
        self.shared = self

    def arm(self):
        self.armed += 1

    def disarm(self):
        pass

    def wait(self, seconds):
        pass


def test_the_process_of_a_paused_actor_sleeps_without_saying_so(monkeypatch):
    job = job_of()
    ports = Ports(channels_of(job))
    everybody = roles_of(job.config)
    [actor] = [factory.build(r, job, ports) for r in everybody if r.name == "actor-0.0"]
    weights, slept = ports.outbox("weights 0"), []
    advice = ports.outbox("advice")
    advise(advice, everybody, Advice(["actor-0.0"]))

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            weights.close()

    monkeypatch.setattr(worker_loop.time, "sleep", sleep)
    listener = Listener([actor], ports.inbox("advice"), everybody)
    saver = type("Saver", (), {"look": lambda self: None, "finish": lambda self: None})()
    Loop([actor], ports, saver, listener=listener).run()
    assert slept == [worker_loop.REST_SECONDS] * 3
    assert ports.armed == 1  # before the first look at the advice
    assert actor.done and actor.counts[Count.PUSHED] == 0


def test_advice_has_a_place_for_every_role():
    job = job_of("actor_cfg.num=3")
    spec = next(spec for spec in channels_of(job) if spec.name == "advice")
    assert spec == ChannelSpec(
        "advice",
        "launcher",
        ("learner-0.0", "buffer-0.0", "actor-0.0", "actor-0.1", "actor-0.2"),
        advice_schema(5),
        Delivery.LATEST,
    )
