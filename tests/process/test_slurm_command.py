"""The job that `tianji slurm` writes, run by bash with stand-ins for Slurm's commands."""

import os
import shlex
import signal
import subprocess

import pytest
from commands import ROOT, end, eventually

from tianji.cli.main import main
from tianji.config import load
from tianji.machine.slurm import SlurmRequest, script

pytestmark = pytest.mark.process

CONFIG = ROOT / "configs" / "cartpole_dqn.py"
LEAVES = """#!/bin/sh
echo "$@" > "$FOLDER/words"
exit $STATUS
"""
STAYS = """#!/bin/bash
leave() {{ echo $1 >> "$FOLDER/signals"; sleep 0.2; exit $((128 + $1)); }}
trap 'leave 10' USR1
trap 'leave 15' TERM
mkdir -p "$FOLDER/runs/cartpole_dqn-77/checkpoints/$SAVES"
touch "$FOLDER/runs_now"
while :; do sleep 0.02; done
"""
SCONTROL = '#!/bin/sh\necho "$@" >> "$FOLDER/scontrol"\n'


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Writes a job and starts it with `program` in the place of tianji."""
    monkeypatch.chdir(tmp_path)
    started = []

    def go(program, **variables):
        assert main(["slurm", str(CONFIG), "--nodes", "2", "--out", "job.sbatch"]) == 0
        for name, text in (("tianji", program), ("scontrol", SCONTROL)):
            path = tmp_path / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.replace("{{", "{").replace("}}", "}"))
            path.chmod(0o755)
        setting = {"FOLDER": str(tmp_path), "SLURM_JOB_ID": "77", **variables}
        lines = (tmp_path / "job.sbatch").read_text().splitlines(keepends=True)
        ours = [f'export PATH="{tmp_path}/bin:$PATH"\n' if "export PATH" in x else x for x in lines]
        (tmp_path / "job.sbatch").write_text("".join(ours))
        pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process = subprocess.Popen(["bash", "job.sbatch"], env=os.environ | setting, **pipes)
        started.append(process)
        return process

    yield go
    for process in started:
        end(process)


def test_the_shell_understands_what_was_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["slurm", str(CONFIG), "--nodes", "2", "--set", "actor_cfg.num=6"]) == 0
    assert capsys.readouterr().out == "cartpole_dqn.sbatch is written: sbatch cartpole_dqn.sbatch\n"
    done = subprocess.run(["bash", "-n", "cartpole_dqn.sbatch"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("status", [0, 1, 2])
def test_a_run_that_ends_by_itself_ends_the_job_with_its_status(job, tmp_path, status):
    process = job(LEAVES, STATUS=str(status))
    assert process.wait(timeout=120) == status
    assert not (tmp_path / "scontrol").exists()
    words = (tmp_path / "words").read_text()
    assert words == f"train {CONFIG} --engine mpi --quiet --run-dir runs/cartpole_dqn-77\n"


@pytest.mark.parametrize(
    ("number", "saves", "requeues"),
    [
        (signal.SIGUSR1, "0002-step-64", ["requeue 77"]),
        (signal.SIGUSR1, "0001-step-32", []),
        (signal.SIGTERM, "0002-step-64", []),
    ],
)
def test_a_signal_reaches_the_run_and_its_warning_puts_the_job_back_if_it_got_further(
    job, tmp_path, number, saves, requeues
):
    (tmp_path / "runs" / "cartpole_dqn-77" / "checkpoints" / "0001-step-32").mkdir(parents=True)
    process = job(STAYS, SAVES=saves)
    eventually((tmp_path / "runs_now").exists, what="the run")
    process.send_signal(number)
    assert process.wait(timeout=120) == 128 + number
    assert (tmp_path / "signals").read_text().split() == [str(int(number))]
    file = tmp_path / "scontrol"
    assert (file.read_text().splitlines() if file.exists() else []) == requeues


def test_a_file_that_cannot_be_written_is_named(tmp_path, capsys):
    out = str(tmp_path / "nowhere" / "job.sbatch")
    assert main(["slurm", str(CONFIG), "--out", out]) == 2
    assert f"--out {out}: there is no folder {tmp_path / 'nowhere'}" in capsys.readouterr().err


def test_a_file_of_ones_own_is_not_lost_and_one_of_ours_is_written_anew(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "mine.py"
    config.write_text(CONFIG.read_text())
    for out, said in (("mine.py", "is the configuration itself"), ("a.txt", "was not written by")):
        (tmp_path / "a.txt").write_text("notes")
        assert main(["slurm", "mine.py", "--out", out]) == 2
        assert said in capsys.readouterr().err
    assert config.read_text() == CONFIG.read_text() and (tmp_path / "a.txt").read_text() == "notes"
    assert [main(["slurm", "mine.py"]), main(["slurm", "mine.py", "--time", "30"])] == [0, 0]
    assert "--time=30" in (tmp_path / "mine.sbatch").read_text()


def test_what_train_would_refuse_is_refused_before_the_queue(tmp_path, capsys):
    out = tmp_path / "job.sbatch"
    assert main(["slurm", str(CONFIG), "--set", "hyp.lrr=0.1", "--out", str(out)]) == 2
    assert "hyp has no key 'lrr'" in capsys.readouterr().err and not out.exists()


HOSTILE = (
    'a b|it\'s|"q"|$(touch hacked)|`touch hacked`|a\nb; touch hacked|;touch hacked|*|\\|-x|#|!1'
)


@pytest.mark.parametrize("kind", ["config", "folder", "path", "value"])
@pytest.mark.parametrize("name", HOSTILE.split("|"))
def test_names_that_the_shell_could_take_for_commands_are_names(tmp_path, name, kind):
    words = {"config": [f"{name}.py"], "value": ["c.py", f"--set=environment.gym_name={name}"]}
    given, bin_ = words.get(kind, ["c.py"]), tmp_path / (name if kind == "path" else "bin")
    bin_.mkdir()
    (bin_ / "tianji").write_text('#!/bin/sh\nprintf "%s\\0" "$@" > "$FOLDER/words"\n')
    (bin_ / "tianji").chmod(0o755)
    folder = f"/home/{name}" if kind == "folder" else "/home"
    if "\n" in folder:
        return
    text = script(load(CONFIG), SlurmRequest(1), given, str(bin_), name, folder)
    (tmp_path / "job.sbatch").write_text(text)
    setting = {"FOLDER": str(tmp_path), "SLURM_JOB_ID": "77"}
    done = subprocess.run(
        ["bash", "job.sbatch"], cwd=tmp_path, env=os.environ | setting, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "words").read_text().split("\0")[1 : 1 + len(given)] == given
    assert not (tmp_path / "hacked").exists()
    head = [line for line in text.splitlines() if line.startswith("#SBATCH --chdir=")]
    assert [shlex.split(line.removeprefix("#SBATCH --chdir=")) for line in head] == [[folder]]
