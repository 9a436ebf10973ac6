"""Whole games without exploration: every return here can be added up by hand."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from fields import spec_of, step_of

from tianji.core.channel import ChannelSpec, Delivery
from tianji.core.counts import Count
from tianji.core.errors import TianJiError
from tianji.core.schema import Field, Schema
from tianji.roles.evaluation import Evaluation, Games, env_seed, evaluate
from tianji.roles.evaluator import ORDER_SCHEMA, Evaluator, evaluation_schema
from tianji.tools.scores import Score, append, describe, table
from tianji.transports.local import LocalTransport

OBS, ACTION = Field("obs", "float32", (1,)), Field("action", "float32")
WEIGHTS = Schema((Field("weights", "float32", (1,)),))
MODES = pytest.mark.parametrize("same_step", [False, True], ids=["next step", "same step"])


class Stairs:
    """Observes the number of the step and pays what the action says.

    Episode k of environment e has `lengths[e][k]` steps; the list begins again when it is over.
    """

    def __init__(self, lengths, same_step=False):
        self.lengths, self.same_step = lengths, same_step
        self.spec = spec_of(OBS, ACTION, None, len(lengths), same_step=same_step)
        self.seeds, self.closed = [], False

    def reset(self, seed=None):
        self.seeds.append(seed)
        n = len(self.lengths)
        self.t, self.k, self.over = np.zeros(n, int), [0] * n, np.zeros(n, bool)
        return {"obs": self.observe()}

    def observe(self):
        return self.t[:, None].astype(np.float32)

    def step(self, action):
        valid = ~self.over
        reward = np.where(valid, action, 1000).astype(np.float32)  # a reset's is never counted
        self.t = np.where(valid, self.t + 1, 0)
        last = [many[k % len(many)] for many, k in zip(self.lengths, self.k, strict=True)]
        self.over = valid & (self.t == last)
        ended, final = self.over, self.observe()
        for e in np.flatnonzero(ended):
            self.k[e] += 1
        if self.same_step:
            self.t = np.where(ended, 0, self.t)
            self.over = np.zeros(len(ended), bool)
        cut = ended & (np.arange(len(ended)) % 2 == 1)  # every second environment truncates
        return step_of(
            self.observe(), reward, ended & ~cut, cut, valid, final if self.same_step else None
        )

    def close(self):
        self.closed = True


class Climber:
    """Answers step t with weight * (t + 1), so that L steps return weight * L * (L + 1) / 2."""

    def __init__(self, weight=1.0):
        self.weight, self.explored = weight, False

    def load(self, weights, version):
        self.weight = float(weights[0])

    def act(self, obs, first, explore=True):
        self.explored |= explore
        return {"action": self.weight * (obs["obs"][:, 0] + 1)}


def finish(games, seed=0):
    games.reset(seed)
    n = 1
    while not games.step():
        n += 1
    return n


# -------------------------------------------------------------------------------------------- games


@MODES
def test_one_environment_plays_one_game_after_the_other(same_step):
    games = Games(Stairs([[3, 1, 2]], same_step), Climber(), 4)
    finish(games)
    assert games.returns.tolist() == [6, 1, 3, 6]
    assert games.lengths.tolist() == [3, 1, 2, 3]


@MODES
def test_three_environments_play_what_falls_to_each_of_them(same_step):
    games = Games(Stairs([[5, 4], [1], [2, 3]], same_step), Climber(weight=2), 5)
    finish(games)
    assert games.returns.tolist() == [30, 2, 6, 20, 2]  # e0 e1 e2 e0 e1
    assert games.lengths.tolist() == [5, 1, 2, 4, 1]


@MODES
def test_short_games_do_not_take_the_place_of_long_ones(same_step):
    games = Games(Stairs([[1], [1], [50]], same_step), Climber(), 3)
    finish(games)
    assert games.lengths.tolist() == [1, 1, 50]


def test_a_reset_between_two_games_takes_a_step_that_is_not_counted():
    assert finish(Games(Stairs([[3, 1, 2]]), Climber(), 3)) == 3 + 1 + 1 + 1 + 2
    assert finish(Games(Stairs([[3, 1, 2]], same_step=True), Climber(), 3)) == 3 + 1 + 2


class Fragile(Stairs):
    """Loses its first game to an error before the third step: that row only resets."""

    def step(self, action):
        if self.t[0] == 2 and not hasattr(self, "lost"):
            self.lost, self.t[0] = True, 0
            none = np.array([False])
            return step_of(self.observe(), np.zeros(1, np.float32), none, none, none)
        return super().step(action)


def test_a_game_that_broke_is_played_once_more():
    games = Games(Fragile([[3, 1]]), Climber(), 2)
    assert finish(games) == 2 + 1 + 3 + 1 + 1
    assert (games.returns.tolist(), games.lengths.tolist()) == ([6, 1], [3, 1])


def test_more_environments_than_games_do_no_harm():
    games = Games(Stairs([[2], [3], [1]]), Climber(), 2)
    finish(games)
    assert games.lengths.tolist() == [2, 3]


def test_nothing_is_explored():
    policy = Climber()
    finish(Games(Stairs([[3]]), policy, 2))
    assert not policy.explored


def test_the_same_seed_gives_the_same_games_also_after_half_a_game():
    env = Stairs([[3, 1], [2, 4]])
    games = Games(env, Climber(), 4)
    finish(games, seed=7)
    first = games.returns.tolist()
    games.reset(7)
    games.step()
    finish(games, seed=7)
    assert games.returns.tolist() == first == [6, 3, 1, 10]
    assert env.seeds == [7, 7, 7]


# --------------------------------------------------------------------------------------- evaluation


def playable(env, policy):
    return SimpleNamespace(policy=policy, version=9, games_environment=lambda n: env)


def test_an_evaluation_closes_its_environments_and_says_what_was_played():
    env = Stairs([[1, 2, 3, 4]])
    result = evaluate(playable(env, Climber()), 4, seed=3)
    assert env.closed
    assert result == Evaluation((1.0, 3.0, 6.0, 10.0), (1, 2, 3, 4), version=9, seed=3)
    assert (result.mean, result.iqm) == (5.0, 4.5)
    assert result.std == pytest.approx(np.sqrt((16 + 4 + 1 + 25) / 4))
    low, high = result.interval
    assert 1.0 <= low < 4.5 < high <= 10.0


def test_seeds_that_are_neighbours_share_no_environment():
    seeds = [env_seed(seed) for seed in range(100)]
    assert min(np.diff(sorted(seeds))) > 1000
    assert all(0 <= seed < 2**31 for seed in seeds)


@pytest.mark.parametrize(("episodes", "seed"), [(0, 0), (-3, 0), (100_001, 0), (1, -1), (1, 2**63)])
def test_numbers_that_nobody_can_play_with_are_refused(episodes, seed):
    with pytest.raises(TianJiError):
        evaluate(playable(Stairs([[1]]), Climber()), episodes, seed)


def test_the_interval_is_worked_out_once(monkeypatch):
    result = Evaluation((1.0, 2.0), (5, 6), version=3, seed=4)
    first = result.interval
    monkeypatch.setattr("tianji.core.stats.interval", None)
    assert result.interval == first


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_returns_that_are_no_numbers_warn_nobody(value):
    row = Evaluation((1.0, value, value, value), (1,) * 4, version=3, seed=4).row("training", 1)
    assert not np.isfinite(row["mean"])


def test_a_row_holds_everything_and_is_json():
    row = Evaluation((1.0, 2.0), (5, 6), version=3, seed=4).row("training", 100, 1.5)
    assert json.loads(json.dumps(row)) == row
    assert row == {
        "of": "training",
        "wall_s": 1.5,
        "env_steps": 100,
        "updates": 3,
        "episodes": 2,
        "seed": 4,
        "mean": 1.5,
        "std": 0.5,
        "iqm": 1.5,
        "low": row["low"],
        "high": row["high"],
        "win_ratio": None,
        "win_low": None,
        "win_high": None,
        "returns": [1.0, 2.0],
        "lengths": [5, 6],
        "won": None,
    }


# ---------------------------------------------------------------------------------------- evaluator


class Stage:
    """An evaluator with the other ends of its channels."""

    def __init__(self, lengths=((2, 1), (1, 3)), n=3, depth=2, same_step=False):
        transport = LocalTransport(
            [
                ChannelSpec("weights", "learner", ("evaluator",), WEIGHTS, Delivery.LATEST),
                ChannelSpec("orders", "launcher", ("evaluator",), ORDER_SCHEMA, Delivery.LATEST),
                ChannelSpec(
                    "results", "evaluator", ("launcher",), evaluation_schema(n, 1), depth=depth
                ),
            ]
        )
        self.weights, self.orders = transport.outbox("weights"), transport.outbox("orders")
        self.results = transport.inbox("results")
        self.env, self.policy = Stairs(lengths, same_step), Climber()
        self.evaluator = Evaluator(
            "evaluator",
            self.env,
            self.policy,
            transport.inbox("weights"),
            transport.inbox("orders"),
            transport.outbox("results"),
            n_episodes=n,
            seed=5,
        )

    def publish(self, weight, version):
        self.weights.push({"weights": np.array([weight], np.float32)}, version)

    def order(self, number):
        self.orders.push({"number": np.asarray(number)}, 0)

    def run(self, n=100):
        """Steps until there is nothing to do; returns how many steps did something."""
        for i in range(n):
            if not self.evaluator.step():
                return i
        return n

    def result(self):
        """What has come, without `won`: nobody can win here."""
        message = self.results.take()
        if message is None:
            return None
        found = {name: array.tolist() for name, array in message.arrays.items()}
        assert np.isnan(found.pop("won")).all()
        return found


@MODES
def test_an_order_is_answered_with_the_returns_of_the_newest_weights(same_step):
    stage = Stage(same_step=same_step)
    stage.publish(1, version=3)
    stage.publish(10, version=8)
    stage.order(0)
    stage.run()
    # Two steps, one step, and again one: times ten. e0's second game is the third result.
    assert stage.result() == {
        "number": 0,
        "version": 8,
        "returned": [30, 10, 10],
        "length": [2, 1, 1],
        "weights": [10],
    }
    assert not stage.policy.explored
    assert stage.evaluator.counts[Count.VERSION] == 8
    assert stage.evaluator.counts[Count.PUSHED] == 1


def test_nothing_is_played_without_an_order_or_without_weights():
    stage = Stage()
    stage.order(0)
    assert stage.run() == 0
    stage.publish(1, version=0)
    assert stage.run() > 0  # the order was kept
    assert stage.result()["number"] == 0
    stage.publish(2, version=1)
    assert stage.run() == 0
    assert stage.result() is None


def test_a_step_of_the_evaluator_is_one_step_of_its_environments():
    stage = Stage()
    stage.publish(1, version=0)
    stage.order(0)
    assert stage.run() == 5  # games begin; two steps, a reset and one step


def test_weights_do_not_change_within_an_evaluation():
    stage = Stage()
    stage.publish(1, version=0)
    stage.order(0)
    stage.evaluator.step()
    stage.publish(100, version=1)
    stage.run()
    result = stage.result()
    assert (result["version"], result["returned"], result["weights"]) == (0, [3, 1, 1], [1])


def test_only_the_newest_order_is_answered_and_weights_are_used_again():
    stage = Stage()
    stage.publish(1, version=4)
    stage.order(0)
    stage.evaluator.step()
    stage.order(1)
    stage.order(2)
    stage.run()
    first, second = stage.result(), stage.result()
    assert (first["number"], second["number"]) == (0, 2)
    assert first | {"number": 2} == second
    assert stage.result() is None
    assert stage.env.seeds == [5, 5]  # the same games for everybody


def test_a_result_that_is_refused_is_kept_and_sent_later():
    stage = Stage(depth=1)
    stage.publish(1, version=0)
    for number in range(2):
        stage.order(number)
        stage.run()
    stage.order(2)
    assert stage.run() == 0  # nothing new begins before the second is sent
    assert stage.evaluator.counts[Count.REFUSED] > 0
    assert stage.result()["number"] == 0
    assert stage.result() is None  # frees the place
    stage.run()
    assert [stage.result()["number"], stage.result()] == [1, None]
    stage.run()
    assert stage.result()["number"] == 2


def test_an_evaluation_in_progress_is_given_up_when_training_ends():
    stage = Stage()
    stage.publish(1, version=0)
    stage.order(0)
    stage.evaluator.step()
    stage.weights.close()
    assert stage.evaluator.step()
    assert stage.evaluator.done
    assert stage.result() is None
    assert stage.results.closed
    stage.evaluator.close()
    assert stage.env.closed


# ------------------------------------------------------------------------------------ what is shown


def scored(folder, name="final", env_steps=1000, returns=(1.0, 2.0, 3.0, 4.0)):
    evaluation = Evaluation(returns, (10,) * len(returns), version=7, seed=0)
    return Score(folder, name, env_steps, evaluation, seconds=0.5)


def test_a_result_is_told_in_a_few_lines(tmp_path):
    text = describe(scored(tmp_path))
    for word in ("2.5 over 4 games", "7 updates, 1,000 steps", "1 to 4", "80 steps/s", "95 %"):
        assert word in text


def test_a_result_is_added_to_no_file_that_a_link_leads_to(tmp_path):
    (tmp_path / "mine").write_text("of mine")
    (tmp_path / "evaluations.jsonl").symlink_to(tmp_path / "mine")
    assert "evaluations.jsonl cannot be written" in append(scored(tmp_path))
    assert (tmp_path / "mine").read_text() == "of mine"


def test_a_table_has_a_line_and_a_bar_for_all_weights(tmp_path):
    late = scored(tmp_path, "0002-step-2000", 2000, (400.0,))
    head, first, second = table([scored(tmp_path, env_steps=None, returns=(100.0,)), late]).split(
        "\n"
    )
    assert head.split()[:3] == ["weights", "steps", "updates"]
    assert first.endswith("  #####")
    assert second.endswith("  " + 20 * "#")
    assert first[: head.index("IQM") + 3].endswith("  100")  # one column under its name
    assert second[: head.index("steps") + 5].endswith("  2,000")


def test_bars_of_negative_returns_grow_with_the_return(tmp_path):
    scores = [scored(tmp_path, returns=(value,)) for value in (-1200.0, -800.0, -200.0)]
    bars = [line.count("#") for line in table(scores).split("\n")[1:]]
    assert bars[0] == 0
    assert bars[0] < bars[1] < bars[2]


def test_rows_are_only_ever_added(tmp_path):
    path = tmp_path / "evaluations.jsonl"
    path.write_text('{"of": "training"}\n{"of": "trai')  # the writer was killed
    assert append(scored(tmp_path)) is None
    assert append(scored(tmp_path)) is None
    first, broken, *ours = path.read_text().splitlines()
    assert (first, broken) == ('{"of": "training"}', '{"of": "trai')
    assert [json.loads(line)["of"] for line in ours] == ["eval", "eval"]


def test_a_folder_that_cannot_be_written_is_a_note(tmp_path):
    (tmp_path / "evaluations.jsonl").mkdir()
    assert "cannot be written" in append(scored(tmp_path))
