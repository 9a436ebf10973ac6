"""The doctor says what is wrong with a machine that it is told about, and what to do."""

import json
import re
import tomllib
from argparse import Namespace
from io import StringIO

import pytest
from commands import ROOT
from rich.console import Console

from tianji.cli import doctor
from tianji.cli.doctor import WIDE, sentence, table
from tianji.tools.doctor import checks, examine
from tianji.tools.doctor.checks import Answer, Finding, Verdict
from tianji.tools.doctor.echo import Echo

GIB = 2**30
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FT = "mca:x\noptions:ft_mpi_support:yes\n"
CPU_TORCH = Answer(True, {"built_for": None, "gpus": []})
CUDA_TORCH = Answer(True, {"built_for": "CUDA 13.0", "gpus": []})
NO_GPU = Answer(False)
A_GPU = Answer(True, ["Card, 8 GiB, driver 500"])
OLD_MPI = Answer(True, {"version": "3.1.6", "library": "Open MPI v4.1.6", "revoke": False})
MPI = Answer(True, {"version": "4.1.2", "library": "Open MPI v5.0.11", "revoke": True})

GOOD = {
    "Linux": checks.platform("Linux", "x86_64", True),
    "two cores": checks.cores(2, 8, None),
    "a limit above what is there": checks.cores(2, 2, 4.0),
    "no thread variables": checks.threads({}, 2),
    "a thread variable that fits": checks.threads({"OMP_NUM_THREADS": "1"}, 2),
    "memory": checks.memory(8 * GIB, 16 * GIB),
    "files": checks.open_files(1024, 4096),
    "files without limit": checks.open_files(-1, -1),
    "a disk": checks.disk(10 * GIB, 0.01),
    "a channel": checks.channel(Echo(1000, 5e-5)),
    "a clock": checks.clock(1e-9, 2030, True),
    "no GPU": checks.gpu(CPU_TORCH, NO_GPU, None),
    "no GPU to be hidden": checks.gpu(CUDA_TORCH, NO_GPU, ""),
    "a GPU": checks.gpu(Answer(True, {"built_for": "CUDA 13.0", "gpus": ["Card"]}), A_GPU, None),
    "MPI": checks.mpi(MPI, Answer(True, "/venv/bin/mpirun")),
    "ULFM": checks.ulfm(MPI, Answer(True, FT)),
    "a library": checks.needed("numpy", "1.26.4", "1.26"),
    "a local version": checks.needed("torch", "2.13.0+cpu", "2.11"),
    "an extra": checks.optional("onnx", "1.17.0"),
}

BAD = {
    "a broken MPI": (
        checks.mpi(Answer(True, error="no lib"), Answer(True, error="mixed")),
        Verdict.NOTE,
        "pip install 'tianji[mpi]'",
    ),
    "two MPIs": (checks.mpi(MPI, Answer(True, error="two MPIs mixed")), Verdict.NOTE, "two MPIs"),
    "an old mpi4py": (checks.ulfm(OLD_MPI, Answer(False)), Verdict.NOTE, "ends the run"),
    "MPI without ULFM": (
        checks.ulfm(MPI, Answer(True, "")),
        Verdict.NOTE,
        "tianji[mpi]",
    ),
    "another system": (
        checks.platform("Darwin", "arm64", False),
        Verdict.PROBLEM,
        "--engine local",
    ),
    "ARM": (checks.platform("Linux", "aarch64", True), Verdict.NOTE, "--engine local"),
    "one core": (checks.cores(1, 8, None), Verdict.NOTE, "2 cores"),
    "half a core": (checks.cores(4, 4, 0.5), Verdict.PROBLEM, "CPU limit"),
    "a limit below the cores": (checks.cores(8, 8, 2.0), Verdict.NOTE, "whole cores"),
    "too many threads": (checks.threads({"OMP_NUM_THREADS": "16"}, 2), Verdict.NOTE, "unset"),
    "threads of no number": (checks.threads({"MKL_NUM_THREADS": "x"}, 2), Verdict.NOTE, "unset"),
    "no memory": (checks.memory(GIB // 10, GIB), Verdict.PROBLEM, "0.5 GiB"),
    "little memory": (checks.memory(GIB, GIB), Verdict.NOTE, "buffer_size"),
    "unknown memory": (checks.memory(None, GIB), Verdict.NOTE, "cannot check"),
    "few files": (checks.open_files(128, 4096), Verdict.NOTE, "ulimit -n"),
    "few files for ever": (checks.open_files(128, 128), Verdict.NOTE, "hard limit"),
    "a full disk": (checks.disk(1000, 0.01), Verdict.PROBLEM, "free some"),
    "a small disk": (checks.disk(GIB // 2, 0.01), Verdict.NOTE, "replay"),
    "a slow disk": (checks.disk(10 * GIB, 2.0), Verdict.NOTE, "local disk"),
    "no channel": (checks.channel(Echo(error="it died")), Verdict.PROBLEM, "--engine local"),
    "a bell that does not wake": (checks.channel(Echo(3, 0.2)), Verdict.NOTE, "bells"),
    "a clock that was never set": (checks.clock(1e-9, 1970, True), Verdict.PROBLEM, "clock"),
    "clocks that differ": (checks.clock(1e-9, 2030, False), Verdict.PROBLEM, "namespace"),
    "a coarse clock": (checks.clock(0.015, 2030, True), Verdict.NOTE, "coarse"),
    "a GPU that torch was not built for": (
        checks.gpu(CPU_TORCH, A_GPU, None),
        Verdict.NOTE,
        "build for the CPU",
    ),
    "a GPU that torch cannot use": (checks.gpu(CUDA_TORCH, A_GPU, None), Verdict.PROBLEM, "driver"),
    "a hidden GPU": (checks.gpu(CUDA_TORCH, A_GPU, ""), Verdict.NOTE, "unset"),
    "a broken torch": (
        checks.gpu(Answer(True, error="ImportError"), NO_GPU, None),
        Verdict.PROBLEM,
        "install torch",
    ),
    "a missing library": (
        checks.needed("numpy", None, "1.26"),
        Verdict.PROBLEM,
        "pip install 'numpy>=1.26'",
    ),
    "an old library": (
        checks.needed("gymnasium", "0.29.1", "1.1"),
        Verdict.PROBLEM,
        "pip install 'gymnasium>=1.1'",
    ),
}


@pytest.mark.parametrize("machine", GOOD)
def test_what_is_well_needs_nothing(machine):
    assert GOOD[machine].verdict is Verdict.OK
    assert not GOOD[machine].advice


@pytest.mark.parametrize("machine", BAD)
def test_what_is_not_well_comes_with_what_to_do(machine):
    finding, verdict, word = BAD[machine]
    assert finding.verdict is verdict
    assert word in finding.advice


def test_the_figures_of_a_small_machine_are_shown():
    assert "0.5" in checks.cores(4, 4, 0.5).found
    assert "enough for 27" in checks.open_files(128, 4096).found
    assert "0.1 GiB free of 1 GiB" in checks.memory(GIB // 10, GIB).found


def test_a_folder_that_is_not_there_cannot_be_written(tmp_path):
    absent = examine.disk(tmp_path / "nowhere")
    assert (absent.verdict, "--run-dir" in absent.advice) == (Verdict.PROBLEM, True)
    assert str(tmp_path / "nowhere") in absent.found
    assert examine.disk(tmp_path).what == "disk"
    assert not list(tmp_path.iterdir())


def test_versions_are_compared_as_numbers():
    assert checks.numbers("2.9.1") < checks.numbers("2.11") < checks.numbers("2.13.0+cpu")


FINDINGS = [
    Finding("Python", "3.12.1", section="machine"),
    Finding("cores", "1 of 8", Verdict.NOTE, "give it 2 cores", "machine"),
    Finding("numpy", "not installed", Verdict.PROBLEM, "pip install numpy", "packages"),
]


def drawn(width, findings=FINDINGS):
    stream = StringIO()
    Console(file=stream, width=width).print(table(findings))
    return stream.getvalue()


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_table_fits_its_terminal(width):
    assert max(map(len, drawn(width).splitlines())) <= width
    assert "-> give it 2 cores" in " ".join(drawn(width).split())


def test_a_pipe_gets_one_line_per_finding():
    first, second, third = (line.split() for line in drawn(WIDE).splitlines())
    assert first == ["ok", "Python", "3.12.1"]
    assert second == ["note", "cores", "1", "of", "8", "->", "give", "it", "2", "cores"]
    assert third[:2] == ["problem", "numpy"]


@pytest.mark.parametrize("width", [60, 120])
def test_the_longest_name_does_not_run_into_what_was_found(width):
    assert "imageio-ffmpeg  0.7.0" in drawn(width, [Finding("imageio-ffmpeg", "0.7.0")])


def test_what_is_missing_but_not_needed_is_neither_well_nor_ill():
    finding = checks.optional("onnx", None)
    assert (finding.verdict, finding.found) == (Verdict.ABSENT, "not installed")
    assert "'tianji[onnx]'" in finding.advice
    assert "'tianji[atari]'" in checks.optional("ale-py", None).advice
    assert "pip install pygame-ce " in checks.optional("pygame-ce", None).advice


def names(declared):
    return {re.match(r"[\w-]+", each)[0].lower() for each in declared}


def test_the_extras_named_in_advice_are_those_of_this_package():
    for package, (_, extra) in checks.OPTIONAL.items():
        assert not extra or package in names(PROJECT["optional-dependencies"][extra])


def test_every_package_that_this_one_declares_is_looked_for():
    extras = PROJECT["optional-dependencies"]
    asked = [extras[name] for name in extras.keys() - {"bench", "dev", "mpi", "render"}]
    assert set(checks.NEEDED) == names(PROJECT["dependencies"])
    assert set(checks.OPTIONAL) >= set().union(*map(names, asked))


def test_a_machine_without_mpi_lacks_nothing_and_is_told_what_brings_it():
    finding = checks.mpi(Answer(False), Answer(True, error="engine mpi needs mpi4py"))
    assert finding.verdict is Verdict.ABSENT and "tianji[mpi]" in finding.advice


def test_mpi_is_named_with_its_mpirun():
    finding = checks.mpi(MPI, Answer(True, "/venv/bin/mpirun"))
    assert finding.found == "mpi4py 4.1.2, Open MPI v5.0.11, /venv/bin/mpirun"


def test_json_holds_every_finding_and_a_problem_gives_status_1(monkeypatch, capsys):
    monkeypatch.setattr(examine, "examine", lambda: FINDINGS)
    assert doctor.run(Namespace(json=True)) == 1
    rows = json.loads(capsys.readouterr().out)
    assert [row["verdict"] for row in rows] == ["ok", "note", "problem"]
    assert rows[2] == {
        "section": "packages",
        "what": "numpy",
        "found": "not installed",
        "verdict": "problem",
        "advice": "pip install numpy",
    }


def test_the_findings_are_counted():
    assert sentence(FINDINGS).startswith("3 ") and sentence(FINDINGS).endswith("1 problem, 1 note")
    assert sentence(FINDINGS[:1]).endswith("nothing to do")
