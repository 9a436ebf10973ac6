"""Imports point down only, heavy libraries load only where they are needed, and bytes stay data."""

import ast
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "tianji"

# From the ground up: a module may import from rooms below its own, and from its own room.
ROOMS = (
    "core",
    "config",
    "models",
    "stores",
    "envs",
    "algorithms",
    "roles",
    "machine",
    "transports",
    "job",
    "observe",
    "engines",
    "strategy",
    "runs",
    "tools",
    "cli",
)

PRELOADING = (
    "engines.run_roles"  # loads what a role will need while the launcher works out the sizes
)


@dataclass(frozen=True)
class Module:
    """One file of the package, read once."""

    path: Path
    tree: ast.Module

    @property
    def name(self):
        """`engines.local` for tianji/engines/local.py."""
        parts = self.path.relative_to(PACKAGE).with_suffix("").parts
        return ".".join(part for part in parts if part != "__init__")

    @property
    def room(self):
        """`engines` for engines.local."""
        return self.name.partition(".")[0]

    @cached_property
    def imports(self):
        """Every module that it imports anywhere, also within functions."""
        found = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.name}:{node.lineno}: a relative import"
                found.add(node.module)
                folder = PACKAGE.parent / node.module.replace(".", "/")
                if node.module == "tianji" or folder.is_dir():
                    found |= {f"{node.module}.{alias.name}" for alias in node.names}
        return found

    @property
    def libraries(self):
        """The first part of each of these names."""
        return {name.partition(".")[0] for name in self.imports}


MODULES = [Module(path, ast.parse(path.read_text())) for path in sorted(PACKAGE.rglob("*.py"))]
NAMES = {f"tianji.{module.name}" for module in MODULES} - {"tianji."}


def ours(module):
    """The modules of this package that one of them imports."""
    return [name.removeprefix("tianji.") for name in module.imports & NAMES]


def importing(library):
    """The modules that import a library."""
    return {module.name for module in MODULES if library in module.libraries}


def in_rooms(*rooms):
    """The modules of some rooms."""
    return {module.name for module in MODULES if module.room in rooms}


def test_the_package_holds_rooms_and_nothing_else():
    files = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*") if path.is_file()]
    found = {path.parts[0] for path in files if "__pycache__" not in path.parts}
    assert found == {"__init__.py", "__main__.py", "py.typed", *ROOMS}


def test_imports_point_down():
    upwards = [
        f"{module.name} imports {other}"
        for module in MODULES
        for other in ours(module)
        if module.room in ROOMS  # and is not the front door
        and ROOMS.index(other.partition(".")[0]) > ROOMS.index(module.room)
    ]
    assert upwards == []


def test_torch_is_imported_where_updates_are_made_and_nowhere_else():
    allowed = {*in_rooms("algorithms", "models"), "core.lazy", PRELOADING}
    assert importing("torch") - allowed == set()


def test_gymnasium_is_imported_by_environments_only():
    assert importing("gymnasium") - in_rooms("envs") - {PRELOADING} == set()


def test_mpi_is_loaded_in_one_place():
    assert importing("mpi4py") == {"transports.mpi_library"}


def test_roles_know_seams_and_no_implementation():
    known = {other for module in MODULES if module.room == "roles" for other in ours(module)}
    assert {name.partition(".")[0] for name in known} <= {"core", "config", "roles"}


FORBIDDEN = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "multiprocessing"}
FORBIDDEN |= {"joblib", "jsonpickle", "yaml", "runpy", "codeop", "builtins"}
EXECUTING = {"eval", "exec", "compile", "__import__"}
UNPICKLING = {"torch.load", "np.memmap", "np.fromfile", "torch.jit.load", "torch.package"}
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}


def test_nothing_is_unpickled():
    assert {name for library in FORBIDDEN for name in importing(library)} == {"core.child"}  # runpy
    allowing = [
        f"{module.name}:{node.value.lineno}"
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle"
        if not (isinstance(node.value, ast.Constant) and node.value.value is False)
    ]
    assert allowing == []


def test_nothing_is_executed():
    executing = [
        f"{module.name}:{node.lineno}: {node.id}"
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in EXECUTING
    ]
    assert executing == []


def test_nothing_is_loaded_by_what_could_unpickle_and_no_word_reaches_a_shell():
    calls = [
        f"{module.name}:{node.lineno}"
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in UNPICKLING | SHELLS
    ]
    shells = [
        f"{module.name}:{node.value.lineno}"
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.keyword) and node.arg == "shell"
    ]
    assert calls + shells == []


def test_no_process_of_ours_looks_for_modules_in_the_current_folder():
    lines = [
        f"{module.name}:{node.lineno}"
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.List | ast.Tuple)
        for word, then in pairwise([*map(ast.unparse, node.elts), ""])
        if word == "sys.executable" and then != "'-P'"
    ]
    assert lines == []


def test_modules_are_imported_by_a_name_that_is_no_constant_in_few_places():
    importing_any = {
        module.name
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module")
        if not isinstance(node.args[0], ast.Constant)
    }
    assert importing_any == {
        "core.imports",  # for configurations: the user's own, or trusted
        "core.lazy",  # a library that the code names
        "",  # the front door, from a table
        "cli.main",  # a verb, from a table
        "envs.agents",  # a library of environments that the code names
        "envs.smac",
    }


RANDOM_MAKERS = {"default_rng", "Generator", "SeedSequence"}


def test_everything_random_comes_from_a_generator_with_a_seed():
    assert importing("random") == set()
    others = [
        f"{module.name}:{node.lineno}: {node.attr}"
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and node.attr not in RANDOM_MAKERS
        if isinstance(node.value, ast.Attribute) and ast.unparse(node.value) == "np.random"
    ]
    assert others == []


def loaded_by(module, child_env):
    """The names of all modules that importing one of ours loads, in a fresh interpreter."""
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=child_env, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module", ["tianji.roles", "tianji.roles.reducer", "tianji.transports.shm", "tianji.config"]
)
def test_an_actors_modules_load_nothing_heavy(module, child_env):
    heavy = {"torch", "gymnasium", "rich", "mpi4py", "safetensors"}
    assert not loaded_by(module, child_env) & heavy
