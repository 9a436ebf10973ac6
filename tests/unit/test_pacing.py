"""Whatever the order of turns, pauses, losses and resumes: what is let in keeps to the formula."""

import pytest
from fields import layout_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tianji.core.balance import Balance, bound_of_lag, usual_lag
from tianji.core.channel import ChannelSpec
from tianji.core.schema import Field
from tianji.core.state import copied
from tianji.roles import Buffer, role_state
from tianji.stores.replay import Replay
from tianji.stores.rollouts import Rollouts
from tianji.transports import ring
from tianji.transports.local import LocalTransport

LENGTH, N = 4, 3
MOST = 4  # actors
TRAJECTORY = layout_of(Field("obs", "float32", (1,)), Field("action", "int64"), (), LENGTH, 1)
ROLLOUTS = [(batch, pool) for batch in (1, 2, 3, 4) for pool in (0, 2)]


class Group:
    """A buffer of ours between puppets of actors and of a learner, on channels of ours."""

    def __init__(self, sampling, ratio, slack, depth, n=N, ahead=0, in_order=False):
        self.sampling, self.ratio, self.slack, self.depth = sampling, ratio, slack, depth
        self.n, self.ahead, self.in_order = n, ahead, in_order
        self.version, self.ages, self.paused, self.gone = 0, [], set(), set()
        self.holds = False  # whether the learner has a batch, the last that it has learned from
        self.open()
        self.save()
        self.save_learner()

    def open(self):
        """Channels with nothing in flight, and a buffer that has seen nothing."""
        n, batch = range(self.n), self.sampling.batch_schema(TRAJECTORY)
        specs = [ChannelSpec(f"t{i}", "a", ("b",), TRAJECTORY, depth=self.depth) for i in n]
        specs.append(ChannelSpec("batches", "b", ("l",), batch, depth=2))
        self.carrier = carrier = LocalTransport(specs)
        self.actors, self.begun = [carrier.outbox(f"t{i}") for i in n], [None] * self.n
        self.learner, self.holds = carrier.inbox("batches"), False
        self.balance = Balance(
            self.ratio, self.sampling.batch_units, self.sampling.warmup, self.slack, self.ahead
        )
        room = self.n * LENGTH if self.in_order else self.slack  # as the factory has it
        store = self.sampling.build(TRAJECTORY, self.n, room, 0)
        inboxes, outbox = [carrier.inbox(f"t{i}") for i in n], carrier.outbox("batches")
        self.buffer = Buffer(
            *("buffer-0.0", inboxes, outbox, store, self.balance),
            in_turns=self.in_order or self.sampling.once,  # and this
            in_order=self.in_order,
        )
        for i in self.gone:
            self.actors[i].close()

    def act(self, i):
        """Begins a trajectory with the newest weights, or ends the one that was begun."""
        if i in self.gone:
            return
        if self.begun[i] is None:
            if i not in self.paused and self.actors[i].slot() is not None:
                self.begun[i] = self.version
            return
        rows = self.actors[i].slot()
        for name, array in TRAJECTORY.empty().items():
            rows[name][...] = array
        rows["length"][...], rows["valid"][...] = LENGTH, True
        self.actors[i].commit(self.begun[i])
        self.begun[i] = None

    def lose(self, i):
        """Dies in a trajectory, and is replaced."""
        self.begun[i] = None

    def lose_for_good(self, i):
        """Dies, and nobody takes its place; one stays."""
        if len(self.gone | {i}) < self.n:
            self.gone.add(i)
            self.actors[i].close()

    def turn(self, _):
        """The buffer goes on beside its learner, or in turns with it again."""
        self.buffer.apart = not self.buffer.apart

    def pause(self, i):
        self.paused ^= {i}

    def receive(self, _=0):
        """A step of the buffer."""
        handed, received = self.buffer.handed, self.balance.received
        self.buffer.step()
        if self.balance.received > received:
            self.check()
        if self.buffer.handed > handed:
            assert self.settled + self.in_flight <= self.balance.earned

    def learn(self, _=0):
        """Frees the last batch, and learns from the next."""
        self.holds = (message := self.learner.take()) is not None
        if message is not None:
            assert message.version == self.version
            self.ages += (self.version - message.arrays["version"]).ravel().tolist()
            if self.sampling.max_lag is not None:
                assert max(self.ages) <= self.sampling.max_lag
            self.version += 1

    def lose_learner(self, _):
        """Dies with a batch that it has not learned from, and is replaced, which takes that."""
        self.learner.take()
        spec, block = self.carrier._specs["batches"], self.carrier._blocks["batches"]
        ring.skip_before(spec, block, self.version)
        self.learner, self.holds = self.carrier.inbox("batches"), False

    def rounds(self, n):
        """Everybody takes fair turns for a while."""
        for _ in range(n + 1):
            for i in range(self.n):
                self.act(i)
            self.receive()
            self.learn()

    def save(self, _=0):
        """The buffer writes its part of a checkpoint."""
        self.saved = copied(role_state.state(self.buffer))

    def save_no_samples(self, _=0):
        self.save()
        self.saved["store"] = None

    def save_learner(self, _=0):
        """And the learner its own, before or after."""
        self.saved_version = self.version

    def resume(self, _=0):
        """Goes on from parts of different moments; what was in flight is lost."""
        self.version = self.saved_version
        self.open()
        role_state.restore(self.buffer, copied(self.saved))
        role_state.rejoin(self.buffer, self.version)

    def resume_ahead(self, n):
        """As above, with a learner that has learned what was handed out, and maybe more."""
        self.save()
        for _ in range(n):
            self.learn()
        self.rounds(n)
        self.save_learner()
        self.resume()

    def resume_behind(self, n):
        """As above, with a learner that has not learned what the buffer handed out meanwhile."""
        self.save_learner()
        self.rounds(n)
        self.save()
        self.resume()

    @property
    def settled(self):
        """Units learned from, without those of a batch that the learner still holds."""
        return (self.version - self.holds) * self.balance.batch

    @property
    def in_flight(self):
        """Units handed out, and not known to be learned from."""
        return self.buffer.batches.in_flight * self.balance.batch

    def check(self):
        """The inequality of `core/balance.py`, of what was just let in."""
        room = self.slack + self.ahead * self.buffer.apart
        most = self.sampling.warmup + (self.settled + self.balance.batch) / self.ratio + room
        first = (self.n - 1) * LENGTH if self.in_order else 0
        assert self.balance.received < max(most, first + 1) + LENGTH


TURNS = ("act", "act", "act", "receive", "learn")
PARTS = ("save", "save_no_samples", "save_learner", "resume", "resume_ahead", "resume_behind")
RARE = ("rounds", "lose", "lose_for_good", "lose_learner", "turn", "pause", *PARTS)
STEPS = st.tuples(st.sampled_from((*TURNS * 5, *RARE)), st.integers(0, MOST - 1))
SCHEDULES = st.lists(STEPS, min_size=100, max_size=300)


def follow(group, schedule):
    for name, i in schedule:
        getattr(group, name)(i % group.n)
    group.paused.clear()
    version = group.version
    for _ in range(200):  # nothing has locked up: in fair turns it learns on
        if group.version > version + 10:
            return
        group.rounds(0)
    raise AssertionError(f"it learned {group.version - version} times")


@settings(max_examples=30)
@given(
    schedule=SCHEDULES,
    shape=st.sampled_from(ROLLOUTS),
    more_lag=st.integers(0, 3),
    slack=st.integers(0, 3),
    depth=st.integers(1, 3),
    n=st.integers(1, MOST),
)
def test_no_schedule_lets_more_rollouts_in_nor_older_ones(
    schedule, shape, more_lag, slack, depth, n
):
    batch, more = shape
    lag = usual_lag(n, batch) + more_lag + more
    sampling = Rollouts(batch, batch + more, LENGTH, max_lag=bound_of_lag(lag, n, batch))
    follow(Group(sampling, 1.0, slack * LENGTH, depth, n), schedule)


@settings(max_examples=30)
@given(
    schedule=SCHEDULES,
    ratio=st.sampled_from([0.5, 1.0, 3.0]),
    warmup=st.integers(0, 20),
    slack=st.integers(0, 9),
    depth=st.integers(1, 3),
    n=st.integers(1, MOST),
    ahead=st.sampled_from([0, LENGTH, 3 * LENGTH]),
)
def test_no_schedule_lets_more_samples_in_for_replay(
    schedule, ratio, warmup, slack, depth, n, ahead
):
    sampling = Replay(batch=4, capacity=60, warmup=warmup)
    follow(Group(sampling, ratio, slack, depth, n, ahead), schedule)


@settings(max_examples=30)
@given(
    schedule=SCHEDULES,
    ratio=st.sampled_from([0.5, 1.0, 3.0]),
    warmup=st.integers(0, 20),
    n=st.integers(1, MOST),
)
def test_in_strict_turns_only_the_first_of_each_actor_may_be_too_many(schedule, ratio, warmup, n):
    sampling = Replay(batch=4, capacity=60, warmup=warmup)
    follow(Group(sampling, ratio, 0, 1, n, in_order=True), schedule)


def test_in_strict_turns_the_first_of_each_actor_do_not_come_twice():
    group = Group(Replay(batch=4, capacity=60, warmup=0), 0.5, 0, 1, in_order=True)
    group.resume()  # nothing was learned: all of them are still to come
    assert group.buffer.opening == N
    group.rounds(1)
    group.save_learner()
    group.resume()  # with a buffer that was saved before all
    assert (group.version, group.balance.received) == (1, 4 / 0.5)
    group.rounds(3)


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_in_equal_turns_samples_are_no_older_than_usual(batch):
    sampling = Rollouts(batch, batch, LENGTH, max_lag=100)
    group = Group(sampling, 1.0, 0, depth=2)
    for _ in range(100):
        for name in ("act", "act"):
            for i in range(N):
                getattr(group, name)(i)
        for _ in range(N // batch + 1):
            group.receive(0)
            group.learn(0)
    assert len(group.ages) > 100
    assert max(group.ages) <= usual_lag(N, batch)


@pytest.mark.parametrize("resume", ["resume_ahead", "resume_behind"])
@pytest.mark.parametrize("apart", range(4))
def test_after_a_resume_there_is_no_burst(resume, apart):
    sampling = Rollouts(2, 2, LENGTH, max_lag=9)
    group = Group(sampling, 1.0, 0, depth=2)
    turns = [(name, i) for i in range(N) for name in ("act", "act", "receive", "learn")]
    follow(group, turns * 20)
    getattr(group, resume)(apart)
    before = group.balance.received
    for name, i in [turn for turn in turns if turn[0] != "learn"] * 20:  # the learner is not back
        getattr(group, name)(i)
    assert group.balance.received - before <= sampling.batch_units + LENGTH
    assert sum(outbox.in_flight for outbox in group.actors) <= N * group.depth


@pytest.mark.parametrize("behind", [None, 0, 2])  # None: what was in flight is there
def test_without_its_samples_a_buffer_owes_nothing_and_warms_up_again(behind):
    group = Group(Replay(batch=4, capacity=200, warmup=8), 0.5, 20, depth=2)
    group.rounds(20)
    group.save_no_samples()
    group.open()
    role_state.restore(group.buffer, copied(group.saved))
    if behind is not None:
        role_state.rejoin(group.buffer, group.version - behind)
    group.balance.receive(8 + int(4 / 0.5) - 1)
    assert not group.balance.may_consume()
    group.balance.receive(1)
    assert group.balance.may_consume()


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("beside", [False, True])
def test_while_nobody_learns_as_much_is_let_in_as_the_formula_says_and_no_more(n, beside):
    group = Group(Replay(batch=4, capacity=200, warmup=8), 0.5, 5, 2, n, ahead=3 * LENGTH)
    if beside:
        group.turn(0)
    for i in range(n - 1):
        group.lose_for_good(i)
    for _ in range(60):
        for i in range(n):
            group.act(i)
        group.receive(0)
    most = 8 + 4 / 0.5 + 5 + 3 * LENGTH * beside
    assert most <= group.balance.received < most + LENGTH
