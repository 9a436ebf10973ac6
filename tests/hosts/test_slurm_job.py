"""The job that `tianji slurm` writes, in an allocation of two hosts: srun and scontrol stand in."""

import os
import signal
import sys
from importlib.util import find_spec

import benches  # noqa: F401
import pytest
from commands import ROOT, eventually, rows
from transmission import hosts as made

from tianji.cli.main import main

REFUSAL = made.refusal() if find_spec("mpi4py") else "mpi4py is not installed"
pytestmark = [
    pytest.mark.hosts,
    pytest.mark.slow,
    pytest.mark.skipif(REFUSAL is not None, reason=str(REFUSAL)),
]
TOOLS = {
    "tianji": f'exec {sys.executable} -m tianji.cli.main "$@"',
    "scontrol": 'echo "$@" >> scontrol.txt',
    "srun": """
[ "$1" = --version ] && { echo "slurm 23.02.6"; exit 0; }
while [ "${1#-}" != "$1" ]; do
    case "$1" in --nodelist=*) nodes="${1#--nodelist=}" ;; esac
    shift
done
export SLURM_NODEID=0 SLURM_PROCID=0 SLURM_STEPID=0
for node in ${nodes//,/ }; do
    "$AGENT" "$node" "$@" &
    SLURM_NODEID=$((SLURM_NODEID + 1))
done
wait
""",
}
ALLOCATION = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOBID": "7",
    "SLURM_NODELIST": "host[0-1]",
    "SLURM_JOB_NODELIST": "host[0-1]",
    "SLURM_TASKS_PER_NODE": "2(x2)",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NNODES": "2",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the job in it, and the tools first on the PATH."""
    monkeypatch.chdir(tmp_path)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in TOOLS.items():
        (tools / name).write_text(f"#!/bin/bash\n{text}\n")
        (tools / name).chmod(0o755)
    given = ["--set", "actor_cfg.num=2", "--set", "exp.stop_return=1000"]
    words = ["slurm", str(ROOT / "configs" / "cartpole_dqn.py"), "--nodes", "2", *given]
    assert main([*words, "--setup", "true", "--out", "job.sbatch"]) == 0
    text = (tmp_path / "job.sbatch").read_text()
    (tmp_path / "job.sbatch").write_text(text.replace("export PATH=", f"export PATH={tools}:"))
    return tmp_path


def warned(hosts, folder):
    """Runs the job until it trains, and warns it; returns its status and what it said."""
    variables = ALLOCATION | {"AGENT": str(hosts.agent()), "PYTHONPATH": str(ROOT)}
    run = folder / "runs" / "cartpole_dqn-7"
    known = len(rows(run))
    with open(folder / "said", "w") as said:
        both = dict(stdout=said, stderr=said, env=os.environ | variables)
        process = hosts[0].start(["bash", "job.sbatch"], **both)
        ended = lambda: process.poll() is not None  # noqa: E731
        eventually(lambda: len(rows(run)) > known or ended(), 60, "training")
        process.send_signal(signal.SIGUSR1)
        status = process.wait(timeout=120)
    return status, (folder / "said").read_text()


def test_a_job_of_two_nodes_is_put_back_into_the_queue_and_goes_on(folder):
    with made.Hosts(2) as hosts:
        status, said = warned(hosts, folder)
        assert status == 138, said
        assert (folder / "scontrol.txt").read_text() == "requeue 7\n"
        carried = hosts[0].sent_bytes() + hosts[0].received_bytes()
        assert carried > 100_000  # weights and trajectories, not just greetings
        status, said = warned(hosts, folder)
        assert status == 138 and "note: resumed from" in said
