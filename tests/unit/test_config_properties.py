"""Properties of whole configs: any text gives a config or an error, any config survives JSON."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tianji.config import Config, Section, from_json
from tianji.config.loader import resolve
from tianji.config.reader import parse
from tianji.core.errors import TianJiError

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def config(text: str, *overrides: str) -> Config:
    return resolve(parse(text, "a.py"), overrides, "a", "/folder")


letters = st.text("aZ_ é'天\n", max_size=4)
values = st.none() | st.booleans() | st.integers(0, 3) | st.floats(0, 2) | letters
nested = st.recursive(
    values,
    lambda v: st.lists(v, max_size=3) | st.dictionaries(letters, v, max_size=3),
    max_leaves=6,
)
hyps = st.dictionaries(letters, nested, max_size=3)


@unhurried
@given(
    hyps,
    hyps,
    st.integers(1, 9),
    st.none() | st.floats(-10, 10),
    st.lists(st.integers(1, 99), max_size=3),
)
def test_any_config_comes_back_from_json(
    hyp: Any, kwargs: Any, num: int, target: float | None, hidden: list[int]
) -> None:
    text = (
        f"environment = dict(type='a:B', kwargs={kwargs!r})\nhyp = {hyp!r}\n"
        f"exp = dict(stop_return={target!r})\nmodel = dict(hidden={hidden!r})\n"
        f"parallel_parameters = dict(actor_cfg=dict(num={num}))"
    )
    made = config(text)
    assert from_json(json.loads(json.dumps(made.to_json()))) == made
    assert isinstance(made.hyp, Section)


WORDS = (
    "environment exp agent model hyp embryo parallel_parameters actor_cfg global_cfg learner_cfg "
    "buffer_cfg exit_val hooks type num seed wrappers kwargs lr x hidden gym_name"
)
names = st.sampled_from(WORDS.split())
trees = st.recursive(
    values | st.sampled_from(["DQN", "a:B", "DQNHead", "GymEnv", "MLP"]),
    lambda v: st.lists(v, max_size=2) | st.dictionaries(names, v, max_size=4),
    max_leaves=12,
)


@unhurried
@given(
    st.dictionaries(names, trees, max_size=6), st.lists(st.tuples(names, names, trees), max_size=2)
)
def test_any_names_give_a_config_or_an_error(sections: dict[str, Any], sets: list[Any]) -> None:
    text = "\n".join(f"{name} = {value!r}" for name, value in sections.items())
    try:
        config(text, *(f"{a}.{b}={value!r}" for a, b, value in sets))
    except TianJiError as error:
        assert str(error).startswith(("a.py", "--set"))


@unhurried
@given(st.text(max_size=20), st.text(max_size=10))
def test_any_override_gives_a_config_or_an_error(anything: str, value: str) -> None:
    for override in (anything, f"exp.{anything}={value}", f"hyp.lr={value}"):
        try:
            config("environment = dict(gym_name='CartPole-v1')", override)
        except TianJiError as error:
            assert str(error).startswith("--set")
