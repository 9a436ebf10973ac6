"""The list of wrappers: what it means, and which lists are none."""

import pytest
from wrapped import environment

from tianji.config.wrappers import CLASSIC, RELEASE, Wrapping
from tianji.core.errors import TianJiError


def wrapping(wrappers):
    return environment(f"game='Pong', wrappers=[{wrappers}]").wrapping


def refusal(arguments):
    with pytest.raises(TianJiError) as error:
        environment(arguments)
    return str(error.value)


def test_the_whole_list_is_the_default():
    classic = Wrapping(30, 4, True, True, 84, 84, True, 4)
    assert environment("game='Pong'").wrapping == classic
    assert wrapping(", ".join(map(repr, CLASSIC))) == classic


def test_the_release_s_names_and_keys_mean_the_same():
    kwargs = {"NoopResetEnv": "noop_max=9", "MaxAndSkipEnv": "skip=3", "FrameStackOrder": "k=2"}
    items = [f"dict(type={name!r}, {kwargs.get(name, '')})" for name in RELEASE]
    idle = ["dict(type='MonitorEnv', allow_early_resets=True)", "dict(type='ScaledFloatFrame')"]
    assert wrapping(", ".join([*items, *idle])) == Wrapping(9, 3, True, True, 84, 84, True, 2)


def test_what_is_not_named_is_not_done():
    assert wrapping("'warp'") == Wrapping()
    assert wrapping("'skip', dict(type='warp', height=42, width=40)") == Wrapping(
        skip=4, height=42, width=40
    )


@pytest.mark.parametrize(
    ("wrappers", "said"),
    [
        ("'skip', 'warp', 'skip'", ["'skip'", "twice"]),
        ("'warp', 'NoopResetEnv', 'noop'", ["'noop'", "twice"]),
        ("'skip', 'noop', 'warp'", ["'skip'", "'noop'", "['noop', 'skip', 'warp']"]),
        ("'fire', 'life', 'warp'", ["'fire'", "'life'", "['life', 'fire', 'warp']"]),
        ("'noop', 'skip'", ["'warp'"]),
        ("", ["'warp'"]),
        ("dict(type='skip', frames=1), 'warp'", ["'skip'", "frames=1"]),
        ("dict(type='warp', size=42)", ["'size'", "height", "width"]),
        ("dict(type='life', k=4), 'warp'", ["'life'", "'k'"]),
        ("dict(type='warp', height=0)", ["height", "found 0"]),
        ("'wrap'", ["'wrap'", "'warp'"]),
    ],
)
def test_a_list_that_contradicts_itself_is_refused_at_its_line(wrappers, said):
    found = refusal(f"game='Pong', wrappers=[{wrappers}]")
    assert found.startswith("a.py:1: ") and all(word in found for word in said), found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "needs one game"),
        ("game='Pong', gym_name='Pong-v5'", "found game='Pong' and gym_name"),
        ("game='Pong', kwargs=dict(mode=1)", "mode"),
        ("game='Pong', sticky=1.5", "sticky must be at most 1"),
        ("game='Pong', max_frames=0", "max_frames must be at least 1"),
        ("type='GymEnv', gym_name='CartPole-v1', sticky=0.25", "sticky belongs to an AtariEnv"),
        ("type='Catch', wrappers=['warp']", "belong to an AtariEnv"),
    ],
)
def test_keys_that_do_not_fit_are_refused(arguments, said):
    assert said in refusal(arguments)
