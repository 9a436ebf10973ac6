"""What the ranks are told through their environment; the rest needs processes."""

import os
from pathlib import Path

from tianji import mpirun, shepherd

FILE = Path("/somewhere/status")


def test_ssh_asks_nobody_and_an_agent_of_ones_own_is_left_alone(monkeypatch):
    assert "BatchMode=yes" in shepherd._environment(FILE)["PRTE_MCA_plm_ssh_args"]
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", "/bin/agent")
    assert "PRTE_MCA_plm_ssh_args" not in shepherd._environment(FILE)


def test_settings_of_ones_own_win(monkeypatch):
    name = next(iter(mpirun.SETTINGS))
    assert shepherd._environment(FILE)[name] == mpirun.SETTINGS[name]
    monkeypatch.setenv(name, "0")
    assert shepherd._environment(FILE)[name] == "0"


def test_rank_0_hears_of_a_terminal_and_its_size(monkeypatch):
    assert shepherd._environment(FILE)[mpirun.TERMINAL] == "0"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((132, 50)))
    told = shepherd._environment(FILE)
    assert (told[mpirun.TERMINAL], told["COLUMNS"], told["LINES"]) == ("1", "132", "50")


def test_a_process_that_has_gone_is_in_no_session():
    assert os.getpid() in shepherd.in_session(os.getsid(0))
    assert shepherd.in_session(2**30) == []
