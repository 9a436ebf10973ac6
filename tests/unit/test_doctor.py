"""The doctor says what is wrong with a machine that it is told about, and what to do."""

import json
import re
from importlib import metadata
from io import StringIO

import pytest
from rich.console import Console

from tianji.tools.doctor import Finding, Section, Verdict, checks, findings_text, packages, readings
from tianji.tools.doctor.finding import note, ok, problem
from tianji.tools.doctor.readings import Answer, Disk, Echo

GIB = 2**30
CPU_TORCH = Answer(True, {"built_for": None, "gpus": []})
CUDA_TORCH = Answer(True, {"built_for": "CUDA 13.0", "gpus": []})
NO_GPU = Answer(False)
A_GPU = Answer(True, ["Card, 8 GiB, driver 500"])
OLD_MPI = Answer(True, {"version": "3.1.6", "library": "Open MPI v4.1.6", "revoke": False})
MPI = Answer(True, {"version": "4.1.2", "library": "Open MPI v5.0.11", "revoke": True})

GOOD = {
    "a recent Python": checks.python((3, 12, 1)),
    "Linux": checks.platform("Linux", "x86_64", True),
    "two cores": checks.cores(2, 8, None),
    "a limit above what is there": checks.cores(2, 2, 4.0),
    "no thread variables": checks.threads({}, 2),
    "a thread variable that fits": checks.threads({"OMP_NUM_THREADS": "1"}, 2),
    "memory": checks.memory(8 * GIB, 16 * GIB),
    "no /dev/shm": checks.shared_memory(None),
    "files": checks.open_files(1024, 4096),
    "files without limit": checks.open_files(-1, -1),
    "a disk": checks.disk(Disk("/here", 10 * GIB, 0.01)),
    "a channel": checks.channel(Echo(1000, 5e-5)),
    "a clock": checks.clock(1e-9, 2030, True),
    "no GPU": checks.gpu(CPU_TORCH, NO_GPU, None),
    "no GPU to be hidden": checks.gpu(CUDA_TORCH, NO_GPU, ""),
    "a GPU": checks.gpu(Answer(True, {"built_for": "CUDA 13.0", "gpus": ["Card"]}), A_GPU, None),
    "MPI": checks.mpi(MPI, Answer(True, "/venv/bin/mpirun")),
    "ULFM": checks.ulfm(MPI, Answer(True, {"ft": True})),
    "a library": packages.check_needed("numpy", "1.26.4", {"numpy": "1.26"}),
    "a local version": packages.check_needed("torch", "2.13.0+cpu", {"torch": "2.11"}),
    "an extra": packages.optional("onnx", "1.17.0", "tianji export"),
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
        checks.ulfm(MPI, Answer(True, {"ft": False})),
        Verdict.NOTE,
        "tianji[mpi]",
    ),
    "an old Python": (checks.python((3, 10, 9)), Verdict.PROBLEM, "3.11"),
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
    "unknown memory": (checks.memory(None, None), Verdict.NOTE, "cannot check"),
    "few files": (checks.open_files(128, 4096), Verdict.NOTE, "ulimit -n"),
    "few files for ever": (checks.open_files(128, 128), Verdict.NOTE, "hard limit"),
    "no permission": (
        checks.disk(Disk("/here", error="Permission denied")),
        Verdict.PROBLEM,
        "--run-dir",
    ),
    "a full disk": (checks.disk(Disk("/here", 1000, 0.01)), Verdict.PROBLEM, "free some"),
    "a small disk": (checks.disk(Disk("/here", GIB // 2, 0.01)), Verdict.NOTE, "replay"),
    "a slow disk": (checks.disk(Disk("/here", 10 * GIB, 2.0)), Verdict.NOTE, "local disk"),
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
        packages.check_needed("numpy", None, {"numpy": "1.26"}),
        Verdict.PROBLEM,
        "pip install 'numpy>=1.26'",
    ),
    "an old library": (
        packages.check_needed("gymnasium", "0.29.1", {"gymnasium": "1.1"}),
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
    assert "No such file" in readings.disk(tmp_path / "nowhere").error
    here = readings.disk(tmp_path)
    assert here.free > 0 and not here.error
    assert not list(tmp_path.iterdir())


def test_versions_are_compared_as_numbers():
    assert packages.numbers("2.9.1") < packages.numbers("2.11") < packages.numbers("2.13.0+cpu")


SECTIONS = [
    Section("machine", (ok("Python", "3.12.1"), note("cores", "1 of 8", "give it 2 cores"))),
    Section("packages", (problem("numpy", "not installed", "pip install numpy"),)),
]


def drawn(width):
    stream = StringIO()
    Console(file=stream, width=width).print(findings_text.to_table(SECTIONS))
    return stream.getvalue()


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_table_fits_its_terminal(width):
    lines = drawn(width).splitlines()
    assert max(map(len, lines)) <= width
    assert "-> give it 2 cores" in " ".join(drawn(width).split())
    assert lines[-1].strip() == "3 things looked at: 1 problem, 1 note"


def test_a_pipe_gets_one_line_per_finding():
    first, second, third, last = findings_text.to_lines(SECTIONS).splitlines()
    assert first == "ok      Python  3.12.1"
    assert second.endswith("1 of 8 -> give it 2 cores")
    assert third.startswith("problem numpy")


@pytest.mark.parametrize("width", [60, 120])
def test_the_longest_name_does_not_run_into_what_was_found(width):
    sections = [Section("optional", (ok("x", "1"), ok("imageio-ffmpeg", "0.7.0")))]
    assert "imageio-ffmpeg  0.7.0" in findings_text.to_lines(sections)
    stream = StringIO()
    Console(file=stream, width=width).print(findings_text.to_table(sections))
    assert "imageio-ffmpeg  0.7.0" in stream.getvalue()


def test_what_is_missing_but_not_needed_is_neither_well_nor_ill():
    finding = packages.optional("onnx", None, "tianji export")
    assert (finding.verdict, finding.found) == (Verdict.ABSENT, "not installed")
    assert finding.advice == "pip install 'tianji[onnx]' for tianji export"
    assert packages.optional("ale-py", None, "Atari").advice == "pip install ale-py for Atari"
    assert findings_text.to_lines([Section("optional", (finding,))]).startswith("-       onnx")
    assert findings_text.worst([Section("optional", (finding, ok("x", "1")))]) is Verdict.OK


def test_the_extras_named_in_advice_are_those_of_this_package():
    declared = metadata.requires("tianji") or []
    for package, extra in packages.EXTRAS.items():
        assert any(re.match(rf"{package}\b.*extra == ['\"]{extra}['\"]", each) for each in declared)


def test_a_machine_without_mpi_lacks_nothing_and_is_told_what_brings_it():
    finding = checks.mpi(Answer(False), Answer(True, error="engine mpi needs mpi4py"))
    assert finding.verdict is Verdict.ABSENT and "tianji[mpi]" in finding.advice


def test_mpi_is_named_with_its_mpirun():
    finding = checks.mpi(MPI, Answer(True, "/venv/bin/mpirun"))
    assert finding.found == "mpi4py 4.1.2, Open MPI v5.0.11, /venv/bin/mpirun"


def test_json_holds_every_finding():
    rows = json.loads(findings_text.to_json(SECTIONS))
    assert [row["verdict"] for row in rows] == ["ok", "note", "problem"]
    assert rows[2] == {
        "section": "packages",
        "what": "numpy",
        "found": "not installed",
        "verdict": "problem",
        "advice": "pip install numpy",
    }


def test_the_gravest_verdict_decides():
    assert findings_text.worst(SECTIONS) is Verdict.PROBLEM
    assert findings_text.worst(SECTIONS[:1]) is Verdict.NOTE
    assert findings_text.worst([Section("nothing", ())]) is Verdict.OK
    assert findings_text.verdict([Section("x", (Finding("a", "b"),))]).endswith("nothing to do")
