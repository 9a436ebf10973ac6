"""Atari games: what ale-py does otherwise than one expects, and what an environment makes of it."""

import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium.vector import VectorEnv
from wrapped import environment

from tianji.config.wrappers import Wrapping
from tianji.core.env import SplitEnv
from tianji.core.errors import TianJiError
from tianji.envs import Rendering, make, make_shown
from tianji.envs.atari_consoles import means

BARE = "'skip', dict(type='warp', height=42, width=42)"  # nothing at random
FLAGS = ("reward", "terminated", "truncated", "valid", "first", "score", "over")


@pytest.fixture
def atari():
    """Makes environments, and ends their threads."""
    made = []

    def build(arguments, n_envs=2, max_step=None):
        env = make(environment(f"threads=1, {arguments}"), n_envs, ".", max_step)
        made.append(env)
        return env

    yield build
    for env in made:
        env.close()


def steps(env, n, seed=0):
    """`n` random steps; the actions are spoilt as soon as they were sent."""
    random = np.random.default_rng(seed)
    for _ in range(n):
        action = random.integers(env.spec.n_actions, size=env.spec.n_envs)
        env.begin(action)
        action.fill(10**6)
        yield env.finish()


def alike(frames, others):
    """Whether they differ by rounding only: a mean of pixels may lie between two grey levels."""
    off = np.abs(frames.astype(int) - others)
    return not off.size or (off.max() <= 1 and (off > 0).mean() < 0.01)


def refusal(arguments, n_envs=1, **more):
    with pytest.raises(TianJiError) as error:
        make(environment(arguments), n_envs, ".", **more)
    return str(error.value)


def test_frames_are_single_bytes_and_the_policy_is_told_how_many_to_stack(atari):
    env = atari("game='Pong', wrappers=['skip', dict(type='warp', height=42, width=40), 'stack']")
    assert str(env.spec.observations) == "(Field(name='obs', dtype='uint8', shape=(42, 40)),)"
    assert (env.spec.stack, env.spec.n_actions, env.spec.max_episode_steps) == (4, 6, 27_000)
    assert isinstance(env, SplitEnv)
    obs = env.reset(1)["obs"]
    assert (obs.shape, obs.dtype) == ((2, 42, 40), np.uint8) and obs.any()
    step = env.step(np.zeros(2, np.int64))
    assert (step.score.dtype, step.reward.dtype) == (np.float32, np.float32)


@pytest.mark.parametrize(
    ("game", "more", "size", "n"),
    [
        ("Breakout", ", 'life'", 42, 90),
        ("Breakout", ", 'life', 'fire'", 42, 150),
        ("Boxing", "", 84, 30),
    ],
)
def test_threads_and_loop_play_the_same_games(atari, game, more, size, n):
    """The loop is Python's own max-and-skip and resize, the threads are ale-py's in C++."""
    warp = f"dict(type='warp', height={size}, width={size})"
    wrappers = f"wrappers=['skip'{more}, {warp}, 'clip']"
    envs = [
        atari(f"game={game!r}, {wrappers}, vectorization={how!r}") for how in ("vector", "sync")
    ]
    assert alike(*(env.reset(3)["obs"] for env in envs))
    for one, other in zip(*(steps(env, n) for env in envs), strict=True):
        for name in FLAGS:
            assert (getattr(one, name) == getattr(other, name)).all(), name
        assert alike(one.obs["obs"][~one.over], other.obs["obs"][~one.over])


@pytest.fixture
def theirs(monkeypatch):
    """Makes a game behind gymnasium's AtariPreprocessing, whose resizing by opencv is done here."""
    import ale_py
    import gymnasium

    def resize(frame, size, interpolation):
        rows, columns = means(frame.shape[0], size[1]), means(frame.shape[1], size[0])
        return np.rint(rows @ frame.astype(np.float32) @ columns.T).astype(np.uint8)

    monkeypatch.setitem(sys.modules, "cv2", SimpleNamespace(resize=resize, INTER_AREA=3))
    gymnasium.register_envs(ale_py)

    def build(game, **more):
        raw = gymnasium.make(f"ALE/{game}-v5", frameskip=1, repeat_action_probability=0.0)
        return gymnasium.wrappers.AtariPreprocessing(raw, frame_skip=4, screen_size=84, **more)

    return build


@pytest.mark.parametrize("noop", ["", "'noop', "])
@pytest.mark.parametrize("life", ["", "'life', "])
@pytest.mark.parametrize("game", ["Breakout", "Pong"])
def test_frames_are_those_of_gymnasium_s_preprocessing(atari, theirs, game, life, noop):
    """A lost life begins another game there, and goes on here: they are alike until then."""
    mine = atari(f"game={game!r}, wrappers=[{noop}'skip', {life}'warp']", n_envs=1)
    n_noops = int(mine._consoles.reset(3).frame_numbers[0])
    assert (n_noops > 0) == bool(noop)
    other = theirs(game, noop_max=n_noops, terminal_on_life_loss=bool(life))
    other.env.reset(seed=3)
    other.unwrapped.np_random = SimpleNamespace(integers=lambda low, high: high - 1)
    assert alike(mine.reset(3)["obs"][0], other.reset()[0])
    actions = np.random.default_rng(0).integers(mine.spec.n_actions, size=100)
    n_alike = 0
    for action in [1, *actions.tolist()]:
        obs, reward, ended, _, _ = other.step(action)
        step = mine.step(np.array([action]))
        assert step.terminated[0] == ended
        if ended:
            break  # the frame at the end was not taken
        assert step.score[0] == reward and alike(step.obs["obs"][0], obs)
        n_alike += 1
    assert n_alike > 20 and ended == (game == "Breakout" and bool(life))
    other.close()


@pytest.mark.parametrize("fire", ["", "'fire', "])
def test_a_lost_life_ends_an_episode_but_not_the_game(atari, fire):
    env = atari(f"game='Breakout', wrappers=['skip', 'life', {fire} 'warp', 'clip']", n_envs=1)
    env.reset(0)
    seen = list(steps(env, 300))
    ended = [t for t, step in enumerate(seen) if step.terminated[0]]
    over = [t for t, step in enumerate(seen) if step.over[0]]
    assert over and set(over) < set(ended)
    assert len([t for t in ended if t <= over[0]]) == 5  # Breakout's lives
    for t in range(len(seen) - 1):
        begins = t in ended
        assert (seen[t + 1].first[0], seen[t + 1].valid[0]) == (begins, not begins)


def test_fire_is_pressed_after_a_lost_life(atari):
    """Without it a policy that never fires would wait for ever: the ball stays away."""
    lives = []
    for fire in ("", "'fire', "):
        env = atari(f"game='Breakout', wrappers=['skip', 'life', {fire} 'warp']", n_envs=1)
        env.reset(0)
        none = np.zeros(1, np.int64)
        lives.append(sum(bool(env.step(none).terminated[0]) for _ in range(150)))
    assert lives[0] == 0 and lives[1] >= 4


def test_rewards_are_clipped_and_points_are_not(atari):
    env = atari("game='SpaceInvaders', wrappers=['skip', 'warp', 'clip']")
    env.reset(0)
    gained = [(step.reward.copy(), step.score.copy()) for step in steps(env, 200)]
    reward, score = (np.concatenate(each) for each in zip(*gained, strict=True))
    assert set(reward.tolist()) == {0.0, 1.0} and score.max() >= 5
    assert (np.sign(score) == reward).all()


@pytest.mark.parametrize(("limit", "max_step"), [("max_frames=203", None), ("", 51)])
def test_a_game_that_takes_too_long_is_cut_off_with_its_true_last_frame(atari, limit, max_step):
    """ale-py would show an older frame, and a value is learned from that one."""
    wrappers = f"wrappers=['skip', {BARE.partition(', ')[2]}]"
    env = atari(f"game='Pong', {wrappers}, {limit}", max_step=max_step)
    whole = atari(f"game='Pong', {wrappers}")
    assert env.spec.max_episode_steps == 51
    first = env.reset(7)["obs"].copy()
    whole.reset(7)
    for t, (step, other) in enumerate(zip(steps(env, 110), steps(whole, 110), strict=True)):
        if t <= 50:
            assert (step.obs["obs"] == other.obs["obs"]).all()
        due = t in (50, 102)  # 51 steps, and one that only begins
        assert (step.truncated == due).all() and (step.over == due).all()
        assert not step.terminated.any()
        assert (step.valid == (t not in (51, 103))).all() and (step.first == ~step.valid).all()
        if t == 51:
            assert (step.obs["obs"] == first).all() and not step.score.any()
        assert step.obs["obs"].any()


def test_the_row_that_begins_a_game_counts_nothing(atari):
    env = atari(f"game='Pong', wrappers=[{BARE}], max_frames=400")
    env.reset(0)
    for step in steps(env, 300):
        assert not step.reward[~step.valid].any() and not step.score[~step.valid].any()
        assert not (step.terminated | step.truncated)[~step.valid].any()


def test_one_seed_gives_the_same_games_with_any_number_of_threads():
    seen = []
    for threads in (1, 3):
        env = make(environment(f"game='Breakout', sticky=0.25, threads={threads}"), 3, ".")
        obs = [env.reset(5)["obs"].copy()]
        obs += [step.obs["obs"] for step in steps(env, 25)]  # each step has arrays of its own
        seen.append(np.array(obs))
        env.close()
    assert (seen[0] == seen[1]).all()
    assert (seen[0][:, 0] != seen[0][:, 1]).any()  # the games of one actor differ


def test_sticky_actions_and_no_ops_change_the_game(atari):
    def frames(more, wrappers=BARE):
        env = atari(f"game='Breakout', wrappers=[{wrappers}]{more}", n_envs=1)
        return np.array([env.reset(5)["obs"], *(step.obs["obs"] for step in steps(env, 15))])

    plain = frames("")
    assert (plain == frames(", sticky=0")).all()
    assert (plain != frames(", sticky=0.9")).any()
    assert (plain != frames("", f"'noop', {BARE}")).any()


@pytest.mark.parametrize("how", ["vector", "sync"])
def test_a_game_begins_with_fewer_frames_of_nothing_than_noop_says(atari, how):
    """0 to 29 with the 30 of the default; 0 to 2 with 3, which is sooner seen."""
    warps = "wrappers=[dict(type='noop', frames=3), 'skip', 'warp']"
    env = atari(f"game='Pong', {warps}, vectorization={how!r}")
    seeds = [0, *[None] * 15]
    assert {n for s in seeds for n in env._consoles.reset(s).frame_numbers.tolist()} == {0, 1, 2}


@pytest.mark.parametrize(
    ("n_envs", "more", "threads"), [(9, "", 5), (3, "", 3), (9, ", threads=2", 2)]
)
def test_games_have_a_thread_per_core_unless_told_otherwise(monkeypatch, n_envs, more, threads):
    from tianji.envs import atari_consoles

    made = []
    monkeypatch.setattr(atari_consoles, "Threads", lambda *given: made.append(given))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(5)), raising=False)
    with pytest.raises(AttributeError):
        make(environment(f"game='Pong'{more}"), n_envs, ".")  # nothing to play with
    assert made[0][-1] == threads


@pytest.mark.parametrize(
    ("name", "sticky"),
    [
        ("game='ms_pacman'", 0),
        ("game='MsPacman'", 0),
        ("gym_name='MsPacmanNoFrameskip-v4'", 0),
        ("gym_name='MsPacmanDeterministic-v0'", 0.25),
        ("gym_name='ALE/MsPacman-v5'", 0.25),
    ],
)
def test_a_game_goes_by_all_its_names(monkeypatch, name, sticky):
    from tianji.envs import atari_consoles

    made = []
    monkeypatch.setattr(atari_consoles, "Threads", Told := lambda *given: made.append(given))
    with pytest.raises(AttributeError):
        make(environment(name), 1, ".")  # nothing to play with
    assert (made[0][0], made[0][2]) == ("ms_pacman", sticky) and Told


def test_the_full_action_set_is_a_switch(atari):
    assert atari("game='Pong', full_actions=True").spec.n_actions == 18


def test_what_ale_py_writes_into_gymnasium_s_class_is_taken_back(atari):
    before = dict(VectorEnv.metadata)
    atari("game='Pong'")
    assert VectorEnv.metadata == before


def test_close_ends_the_threads_even_in_the_middle_of_a_step():
    before = len(os.listdir("/proc/self/task"))
    env = make(environment("game='Pong', threads=3"), 3, ".")
    env.reset(0)
    assert len(os.listdir("/proc/self/task")) > before
    env.begin(np.zeros(3, np.int64))
    env.close()
    assert len(os.listdir("/proc/self/task")) == before


def test_a_reset_in_the_middle_of_a_step_gives_the_step_up(atari):
    env = atari(f"game='Pong', wrappers=[{BARE}]")
    first = env.reset(0)["obs"].copy()
    env.begin(np.ones(2, np.int64))
    assert (env.reset(0)["obs"] == first).all()
    assert env.step(np.zeros(2, np.int64)).valid.all()


@pytest.mark.parametrize("wrong", [6, -1])
def test_an_action_outside_the_space_is_an_error_and_does_not_block(atari, wrong):
    env = atari("game='Pong'", n_envs=3)
    env.reset(0)
    with pytest.raises(TianJiError, match=rf"Pong: action {wrong} of environment 2 .*0 to 5"):
        env.step(np.array([0, 5, wrong]))
    assert env.step(np.zeros(3, np.int32)).valid.all()  # goes on, and takes other integers


def test_the_first_game_can_be_looked_at():
    env = make_shown(environment("game='Pong'"), ".", None, Rendering.PICTURES)
    env.reset(0)
    assert env.picture().shape == (210, 160, 3) and env.fps == 15
    assert env.step(np.zeros(1, np.int64)).obs["obs"].shape == (1, 84, 84)
    env.close()


@pytest.mark.parametrize(
    ("arguments", "n_envs", "said"),
    [
        ("game='Pnog'", 1, ["'Pnog'", "'pong'"]),
        ("game='breakuot'", 1, ["'breakout'"]),
        ("gym_name='Pong-v9'", 1, ["'Pong-v9'"]),
        ("game='Pong', vectorization='single'", 2, ["'single'", "'sync'"]),
        ("game='Pong', vectorization='vector', render=True", 1, ["'vector'", "'sync'"]),
    ],
)
def test_what_cannot_be_made_is_refused(arguments, n_envs, said):
    found = refusal(arguments, n_envs)
    assert all(word in found for word in said), found


def test_without_ale_py_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    assert "pip install 'tianji[atari]'" in refusal("game='Pong'")


def test_the_wrapping_of_the_paper_is_the_default():
    assert environment("game='Pong'").wrapping == Wrapping(30, 4, True, True, 84, 84, True, 4)
