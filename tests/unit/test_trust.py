"""Code that a run's own config.json names is imported if this user recorded it, or says so."""

import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from commands import TASKS

import tianji
from tianji.cli.main import main
from tianji.config import load as load_config
from tianji.core import checkpoint, child
from tianji.core.errors import TianJiError
from tianji.observe import replay_record
from tianji.runs import replay, trust

EVIL = """
import pathlib
pathlib.Path({mark!r}).write_text("imported")
from walk import Walk as Env
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run in an environment of one's own."""
    task, folder = TASKS / "walk_ppo.py", tmp_path_factory.mktemp("trust") / "run"
    ends = ("exp.train_steps=700", "exp.save_freq=2")
    return tianji.train(task, *ends, engine="local", run_dir=folder).folder


def changed(run, /, **values):
    """Has the run's config.json say something else."""
    about = json.loads((run / "config.json").read_text())
    for name, value in values.items():
        section, _, key = name.rpartition("__")
        (about["config"][section] if section else about["config"])[key] = value
    (run / "config.json").write_text(json.dumps(about))
    return run


@pytest.fixture
def evil(whole, tmp_path, monkeypatch):
    """A run folder as a stranger sends it: it names itself as the folder of its classes."""
    run = shutil.copytree(whole, tmp_path / "run")
    (run / "evil.py").write_text(EVIL.format(mark=str(tmp_path / "mark")))
    changed(run, folder=str(run), environment__type="evil:Env")
    monkeypatch.syspath_prepend(str(TASKS))
    yield run
    sys.modules.pop("evil", None)


def recorded(run):
    (run / replay_record.FOLDER).mkdir()
    return run


DOORS = {
    "load": lambda run: tianji.load(run),
    "replay": lambda run: replay.replay(recorded(run)),
    "resume": lambda run: tianji.resume(run, exp={"train_steps": 9_000}, engine="local"),
    "export": lambda run: tianji.export(run),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_strangers_class_is_not_imported(evil, tmp_path, door):
    with pytest.raises(TianJiError) as told:
        DOORS[door](evil)
    for words in ("evil:Env", repr(str(evil)), "--trust", "trust=True", "tianji train CONFIG"):
        assert words in str(told.value)
    assert not (tmp_path / "mark").exists()
    assert "evil" not in sys.modules and str(evil) not in sys.path


@pytest.mark.parametrize("verb", ["eval", "export --onnx", "resume --quiet", "report", "trace"])
def test_no_verb_imports_it(evil, tmp_path, verb, capsys):
    name, *options = verb.split()
    main([name, str(evil), *options])
    assert not (tmp_path / "mark").exists()
    capsys.readouterr()


def test_with_trust_it_is(evil, tmp_path):
    policy = tianji.load(evil, trust=True)
    assert policy.version > 0
    assert (tmp_path / "mark").read_text() == "imported"


def test_one_s_own_run_needs_no_word(whole):
    assert json.loads((whole / "config.json").read_text())["seal"]
    assert tianji.load(whole).version > 0
    newest = checkpoint.folders_of(whole)[-1]
    assert tianji.load(newest).version > 0


@pytest.mark.parametrize("how", ["no seal", "another seal", "another secret", "seal is a list"])
def test_a_seal_that_does_not_fit_is_none(whole, tmp_path, monkeypatch, how):
    run = shutil.copytree(whole, tmp_path / "run")
    about = json.loads((run / "config.json").read_text())
    if how == "another secret":
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    about["seal"] = {"no seal": None, "another seal": "0" * 64, "seal is a list": []}.get(
        how, about["seal"]
    )
    (run / "config.json").write_text(json.dumps(about))
    with pytest.raises(TianJiError, match="walk:Walk"):
        tianji.load(run)
    assert tianji.load(run, trust=True).version > 0


def test_a_seal_is_of_the_whole_configuration(whole, tmp_path):
    run = changed(shutil.copytree(whole, tmp_path / "run"), environment__kwargs={"n": 9})
    with pytest.raises(TianJiError, match="no seal of yours"):
        tianji.load(run)


def test_a_run_without_code_of_its_own_needs_no_seal_and_its_folder_is_not_looked_at(tmp_path):
    task, ends = TASKS / "cartpole_ppo.py", ("exp.train_steps=600", "exp.stop_return=None")
    run = tianji.train(task, *ends, engine="local", run_dir=tmp_path / "run").folder
    assert "seal" not in json.loads((run / "config.json").read_text())
    changed(run, folder=str(run))
    assert tianji.load(run).version > 0
    assert str(run) not in sys.path


def test_the_secret_is_this_users_alone_and_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    first = trust._key()
    file = tmp_path / "state" / "tianji" / "secret"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert trust._key() == first == file.read_bytes() and len(first) == 32
    assert [path.name for path in file.parent.iterdir()] == ["secret"]


def test_without_a_place_for_a_secret_a_run_is_trained_all_the_same(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    task, end = TASKS / "walk_ppo.py", "exp.train_steps=300"
    report = tianji.train(task, end, engine="local", run_dir=tmp_path / "run")
    assert (report.status, report.policy().version) == ("finished", report.summary["updates"])
    with pytest.raises(TianJiError, match="walk:Walk"):
        tianji.load(report.folder)


def test_nothing_is_imported_from_the_folder_that_one_is_in(whole, tmp_path):
    run = shutil.copytree(whole, tmp_path / "run")
    for name in ("numpy", "json", "torch", "tianji"):
        (run / f"{name}.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w')\n")
    words = ("resume", ".", "--quiet", "--engine", "process", "--set", "exp.train_steps=6000")
    line = [*child.command_for("tianji"), *words]
    done = subprocess.run(line, cwd=run, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert json.loads((run / "summary.json").read_text())["env_steps"] >= 6000
    assert not (tmp_path / "mark").exists()


def test_a_checkout_that_is_not_installed_starts_itself(tmp_path):
    package = shutil.copytree(Path(tianji.__file__).parent, tmp_path / "there" / "tianji")
    front = package / "__init__.py"
    front.write_text(front.read_text().replace(tianji.__version__, "9.9.9"))
    ask = "from tianji.core.child import *; print(*command_for('tianji'), sep='|', end='')"
    line = [sys.executable, "-c", ask]
    for place, more in ((package.parent, ()), (tmp_path, ("--version",))):
        done = subprocess.run([*line, *more], cwd=place, capture_output=True, text=True, check=True)
        line = done.stdout.split("|")
    assert line == ["tianji 9.9.9\n"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("environment.type", '"my:Env"'),
        ("environment.gym_name", '"my:Env-v0"'),
        ("agent.type", '"my:Alg"'),
        ("model.type", '"my:Net"'),
        ("actor_cfg.trigger", '"my:When"'),
        ("learner_cfg.trigger", '"my:When"'),
        ("global_cfg.transport", '"my:Way"'),
    ],
)
def test_every_key_that_names_a_class_is_known(key, value):
    config = load_config(TASKS / "cartpole_ppo.py", [f"{key}={value}"])
    assert trust.code_of(config) == [value.strip('"')]
