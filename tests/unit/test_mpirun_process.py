"""What the ranks are told through their environment; the rest needs processes."""

import os
from pathlib import Path

from tianji.machine import mpirun, mpirun_process

FILE = Path("/somewhere/status")


def test_ssh_asks_nobody_and_an_agent_of_ones_own_is_left_alone(monkeypatch):
    assert "BatchMode=yes" in mpirun_process._environment(FILE)["PRTE_MCA_plm_ssh_args"]
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", "/bin/agent")
    assert "PRTE_MCA_plm_ssh_args" not in mpirun_process._environment(FILE)


def test_settings_of_ones_own_win(monkeypatch):
    name = next(iter(mpirun.SETTINGS))
    assert mpirun_process._environment(FILE)[name] == mpirun.SETTINGS[name]
    monkeypatch.setenv(name, "0")
    assert mpirun_process._environment(FILE)[name] == "0"


def test_rank_0_hears_of_a_terminal_and_its_size(monkeypatch):
    assert mpirun_process._environment(FILE)[mpirun.TERMINAL] == "0"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((132, 50)))
    told = mpirun_process._environment(FILE)
    assert (told[mpirun.TERMINAL], told["COLUMNS"], told["LINES"]) == ("1", "132", "50")


def test_a_process_that_has_gone_is_in_no_session():
    assert os.getpid() in mpirun_process.in_session(os.getsid(0))
    assert mpirun_process.in_session(2**30) == []


def test_what_is_starting_is_said_in_one_line(monkeypatch):
    size = lambda: os.terminal_size((40, 24))  # noqa: E731
    monkeypatch.setattr("shutil.get_terminal_size", size)
    assert mpirun_process.starting(3, None, {}) == "starting 3 ranks on this machine ..."
    assert mpirun_process.starting(3, ["a", "b"], {}) == "starting 3 ranks on a, b ..."
    assert mpirun_process.starting(9, None, {"SLURM_JOB_NODELIST": "n[1-2]"}) == (
        "starting 9 ranks on n[1-2] ..."
    )
    long = mpirun_process.starting(30, [f"node{i}" for i in range(30)], {})
    assert len(long) == 39 and long.endswith(" ...")


def test_the_first_words_take_the_place_of_the_line(tmp_path, capfdbinary):
    job = mpirun_process.MpirunJob(tmp_path, 3, False)
    job.announce("starting 3 ranks ...")
    for words in (b"", b"one\n", b"two\n"):
        job._show(1, words)
    assert capfdbinary.readouterr().out == b"starting 3 ranks ...\r\x1b[2Kone\ntwo\n"
