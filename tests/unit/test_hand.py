"""A child that measures, seen from the launcher, when something goes wrong."""

import pytest

from tianji.errors import TianJiError
from tianji.probing import hand as module
from tianji.probing.hand import Hand, OutOfMemory


@pytest.fixture
def child(monkeypatch):
    """A hand whose child is another program."""

    def start(program):
        popen = module.subprocess.Popen
        monkeypatch.setattr(
            module.subprocess,
            "Popen",
            lambda words, **options: popen([words[0], "-c", program], **options),
        )
        return Hand("learner", 1)

    return start


def test_a_child_that_has_gone_is_an_error_and_no_silence(child):
    """What it was told last is still in the pipe when that is closed."""
    hand = child("raise SystemExit(3)")
    hand._process.wait()
    with pytest.raises(TianJiError, match="ended with status 3"), hand:
        hand._tell("x" * 100_000)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [('{"error": "no"}', TianJiError), ('{"error": "CUDA", "memory": true}', OutOfMemory)],
)
def test_what_a_child_could_not_do_is_said(child, answer, kind):
    with child(f"print('''{answer}''', flush=True)") as hand:
        with pytest.raises(TianJiError, match="the learner that was measured: ") as caught:
            hand.await_ready()
        assert type(caught.value) is kind
