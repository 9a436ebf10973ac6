"""A child that measures, seen from the launcher, when something goes wrong."""

import pytest

from tianji.config import load
from tianji.errors import TianJiError
from tianji.probing import hand as module
from tianji.probing.hand import Hand, OutOfMemory, Task, together


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


@pytest.mark.parametrize("when", [0, 1])
def test_hands_can_be_used_again_after_one_of_them_had_no_memory(child, when, root):
    """The others have answers that nobody wants, and must not give them to the next question."""
    program = (
        "import json, sys\n"
        "for n, line in enumerate(iter(sys.stdin.readline, '')):\n"
        "    config = json.loads(line)\n"
        "    answers = [{'ready': n}, {'answer': n}]\n"
        "    lacks = n == 0 and config['cores'] == [7]\n"
        f"    for i, answer in enumerate(answers[: 1 + {when}] if lacks else answers):\n"
        f"        if lacks and i == {when}:\n"
        "            answer = {'error': 'none left', 'memory': True}\n"
        "        print(json.dumps(answer), flush=True)\n"
        "        if i == 0 and not 'error' in answer:\n"
        "            sys.stdin.readline()\n"
    )
    config = load(root / "configs" / "cartpole_dqn.py", [])
    with child(program) as first, child(program) as second:
        tasks = [Task(first, config, [7]), Task(second, config, [8])]
        with pytest.raises(OutOfMemory, match="none left"):
            together(tasks, 0.1)
        assert together(tasks, 0.1) == [{"answer": 1}, {"answer": 1}]
