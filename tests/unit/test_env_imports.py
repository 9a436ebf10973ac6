"""Classes named `module:Class` in a config."""

import sys
import traceback

import pytest

from tianji.core.errors import TianJiError
from tianji.core.imports import load_class


@pytest.fixture(autouse=True)
def clean_path(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))


def write(folder, name, text):
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(text)
    return str(folder)


def test_a_class_beside_the_config_is_found(tmp_path):
    folder = write(tmp_path, "own_first", "class Mine: pass\n")
    assert load_class("own_first:Mine", folder).__name__ == "Mine"
    assert sys.path[0] == folder


def test_an_installed_class_is_found(tmp_path):
    assert load_class("tianji.core.errors:TianJiError", str(tmp_path)) is TianJiError


def test_namesakes_in_two_folders_are_not_mixed_up(tmp_path):
    one = write(tmp_path / "one", "own_twin", "class Twin: number = 1\n")
    two = write(tmp_path / "two", "own_twin", "class Twin: number = 2\n")
    assert load_class("own_twin:Twin", one).number == 1
    assert load_class("own_twin:Twin", two).number == 2
    assert load_class("own_twin:Twin", one).number == 1


def test_a_file_that_hides_a_module_of_python_is_refused(tmp_path):
    folder = write(tmp_path, "json", "class Mine: pass\n")
    with pytest.raises(TianJiError, match=r"already has a module 'json' .*rename the file"):
        load_class("json:Mine", folder)


def test_a_missing_module_names_the_nearest_file(tmp_path):
    folder = write(tmp_path, "corridor", "")
    with pytest.raises(TianJiError, match=r"no module 'coridor' in .*Did you mean 'corridor'\?"):
        load_class("coridor:Mine", folder)


def test_a_missing_class_names_the_nearest_one(tmp_path):
    folder = write(tmp_path, "own_second", "class Corridor: pass\n")
    with pytest.raises(TianJiError, match=r"no class 'Coridor'. Did you mean 'Corridor'\?"):
        load_class("own_second:Coridor", folder)


def test_what_is_not_a_class_is_refused(tmp_path):
    folder = write(tmp_path, "own_third", "Mine = 3\n")
    with pytest.raises(TianJiError, match="is no class but int 3"):
        load_class("own_third:Mine", folder)


@pytest.mark.parametrize(
    "name", ["Mine", "own:", ":Mine", "a b:Mine", "own:a.b", "own/env.py:Mine"]
)
def test_a_name_of_another_form_is_refused(tmp_path, name):
    with pytest.raises(TianJiError, match="want 'module:Class'"):
        load_class(name, str(tmp_path))


def test_a_module_that_raises_keeps_its_traceback(tmp_path):
    folder = write(tmp_path, "own_broken", "\n\nraise ValueError('no such map')\n")
    with pytest.raises(TianJiError, match=r"own_broken.py:3: ValueError: no such map") as caught:
        load_class("own_broken:Mine", folder)
    cause = caught.value.__cause__
    assert isinstance(cause, ValueError)
    assert traceback.extract_tb(cause.__traceback__)[-1].lineno == 3


def test_a_module_that_does_not_parse_says_where(tmp_path):
    folder = write(tmp_path, "own_typo", "class Mine:\n    def\n")
    with pytest.raises(TianJiError, match=r"own_typo.py:2: SyntaxError"):
        load_class("own_typo:Mine", folder)


def test_a_module_that_imports_what_is_missing_is_told_apart_from_a_missing_one(tmp_path):
    folder = write(tmp_path, "own_needy", "import no_such_package_at_all\n")
    with pytest.raises(TianJiError, match=r"own_needy.py:1: ModuleNotFoundError"):
        load_class("own_needy:Mine", folder)
