"""Classes that a config file names as `module:Class`, found beside that file."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from tianji.core.errors import TianJiError

_ours: set[str] = set()  # modules that were imported from a config's folder


def load_class(name: str, folder: str) -> type:
    """The class that `name`, "module:Class", means, looked for in `folder` first.

    The folder is put in front of `sys.path` and stays there, so that the module's own imports are
    found as well. A module of the same name from another config's folder is replaced, not mistaken
    for this one.

    Raises:
        TianJiError: There is no such module or class, or the module raises while it is imported:
            then the original exception is the `__cause__`.
    """
    module_name, colon, class_name = name.partition(":")
    if not (colon and class_name.isidentifier() and _is_dotted_name(module_name)):
        raise TianJiError(
            f"{name!r} does not name a class: want 'module:Class', as in 'my_env:MyEnv'"
        )
    module = load_module(module_name, folder)
    found = vars(module).get(class_name)
    if isinstance(found, type):
        return found
    if class_name in vars(module):
        raise TianJiError(f"{name!r} is no class but {type(found).__name__} {found!r:.60}")
    classes = [key for key, value in vars(module).items() if isinstance(value, type)]
    place = getattr(module, "__file__", None) or module_name
    raise TianJiError(f"{place} has no class {class_name!r}{did_you_mean(class_name, classes)}")


def load_module(name: str, folder: str) -> ModuleType:
    """Imports module `name`, looking in `folder` first; raises as `load_class` does.

    For one of TianJi's own the folder is not looked at, nor put where later imports look.
    """
    if name.partition(".")[0] != "tianji":
        lead_path(folder)
        _forget_namesake(name, folder)
    try:
        module = importlib.import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and _is_part(error.name, name):
            raise _no_such_module(name, folder) from error
        kind = type(error).__name__
        raise TianJiError(
            f"module {name!r} cannot be imported: {_where(error)}: {kind}: {error}"
        ) from error
    if _file_of(name, folder) is not None:
        _ours.add(name)
    return module


def lead_path(folder: str) -> None:
    """Puts `folder` in front of `sys.path`, where Python looks for modules first."""
    folder = os.path.abspath(folder)
    if not sys.path or sys.path[0] != folder:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()


def did_you_mean(name: str, known: Iterable[str], n: int = 1) -> str:
    """`. Did you mean 'x'?` with the nearest of the known names, or nothing if none is near."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=n, cutoff=0.6)
    names = " or ".join(repr(by_lower[each]) for each in near)
    return f". Did you mean {names}?" if names else ""


def _is_dotted_name(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _is_part(missing: str | None, name: str) -> bool:
    """Whether what was missing is `name` or one of its parents, not something it imports."""
    return missing is not None and f"{name}.".startswith(f"{missing}.")


def _file_of(name: str, folder: str) -> Path | None:
    """The file in `folder` that module `name` would come from."""
    path = Path(folder).resolve().joinpath(*name.split("."))
    files = (path.with_name(f"{path.name}.py"), path / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def _forget_namesake(name: str, folder: str) -> None:
    """Makes room for the module in `folder` where another of that name is already loaded."""
    wanted, loaded = _file_of(name, folder), sys.modules.get(name)
    if wanted is None or loaded is None:
        return
    origin = getattr(loaded, "__file__", None)
    if origin is not None and Path(origin).resolve() == wanted:
        return
    if name not in _ours:
        raise TianJiError(
            f"{wanted}: Python already has a module {name!r} ({origin}): rename the file"
        )
    del sys.modules[name]


def _no_such_module(name: str, folder: str) -> TianJiError:
    files = [path.stem for path in Path(folder).glob("*.py")]
    place, near = os.path.abspath(folder), did_you_mean(name, files)
    return TianJiError(f"no module {name!r} in {place}, nor is one installed{near}")


def _where(error: Exception) -> str:
    """file:line from which an exception came that an import raised."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")
    ]
    inner = frames[-1]
    return f"{inner.filename}:{inner.lineno}"
