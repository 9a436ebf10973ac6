"""A child that measures, seen from the launcher, when something goes wrong."""

import json
import os

import pytest
from commands import alive, eventually

from tianji.config import load
from tianji.core.errors import TianJiError
from tianji.strategy.probe import probe_handle as module
from tianji.strategy.probe import probe_process as measuring
from tianji.strategy.probe.probe_handle import OutOfMemory, ProbeHandle, ProbeTask, together

pytestmark = pytest.mark.process


@pytest.fixture
def child(monkeypatch):
    """A hand whose child is another program."""

    popen = module.subprocess.Popen

    def start(program):
        monkeypatch.setattr(
            module.subprocess,
            "Popen",
            lambda words, **options: popen([words[0], "-c", program], **options),
        )
        return ProbeHandle("learner", 1)

    return start


def test_a_child_that_has_gone_is_an_error_and_no_silence(child):
    """What it was told last is still in the pipe when that is closed."""
    hand = child("raise SystemExit(3)")
    hand._process.wait()
    with pytest.raises(TianJiError, match="ended with status 3"), hand:
        hand._tell("x" * 100_000)


def test_what_a_child_has_started_goes_with_it(child):
    program = (
        "import json, subprocess, time\n"
        "started = subprocess.Popen(['sleep', '1000'])\n"
        "print(json.dumps({'pid': started.pid}), flush=True)\n"
        "time.sleep(1000)\n"
    )
    with child(program) as hand:
        pid = hand._hear()["pid"]
        assert alive(pid)
    eventually(lambda: not alive(pid), what="the end of what it has started")


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
        tasks = [ProbeTask(first, config, [7]), ProbeTask(second, config, [8])]
        with pytest.raises(OutOfMemory, match="none left"):
            together(tasks, 0.1)
        assert together(tasks, 0.1) == [{"answer": 1}, {"answer": 1}]


def test_a_child_that_the_system_killed_lacked_memory(child):
    """Nobody else kills it, and it has no last words."""
    hand = child("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with hand, pytest.raises(OutOfMemory, match=r"killed.* lower hyp\.buffer_size, or on-policy"):
        hand.await_ready()  # with fewer cores its store would be as large


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
         True),
        (MemoryError(), True),
        (TianJiError("no such environment"), False),
    ],
)  # fmt: skip
def test_a_child_says_what_it_could_not_measure(root, monkeypatch, error, lacks):
    def fails(*_):
        raise error

    monkeypatch.setattr("tianji.strategy.probe.measure.LearnerProbe", fails)
    config = load(root / "configs" / "cartpole_dqn.py", [])
    task = {"config": config.to_json(), "cores": [0], "seconds": 0.1, "threads": 1, "pause": 0.0}
    heard, said = os.pipe()
    measuring._measure("learner", task, said)
    os.close(said)
    with open(heard) as answers:
        (answer,) = map(json.loads, answers)
    assert answer["error"] and answer.get("memory", False) is lacks


def test_a_child_does_not_hide_other_mistakes(root, monkeypatch):
    def fails(*_):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr("tianji.strategy.probe.measure.LearnerProbe", fails)
    config = load(root / "configs" / "cartpole_dqn.py", [])
    task = {"config": config.to_json(), "threads": 1, "pause": 0.0, "seconds": 0.1}
    with pytest.raises(RuntimeError, match="shapes"):
        measuring._measure("learner", task, -1)
