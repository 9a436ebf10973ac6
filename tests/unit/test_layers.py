"""Imports point down only, heavy libraries load only where they are needed, and bytes stay data."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "tianji"
FILES = sorted(PACKAGE.rglob("*.py"))

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


def module_of(path):
    """`engines.local` for tianji/engines/local.py."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def room_of(module):
    """`engines` for engines.local."""
    return module.partition(".")[0]


def imports_of(path):
    """Every module that a file imports anywhere, also within functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno}: a relative import"
            yield node.module
            if node.module == "tianji" or (PACKAGE.parent / node.module.replace(".", "/")).is_dir():
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(path):
    """The modules of this package that a file imports."""
    known = {f"tianji.{module_of(file)}" for file in FILES}
    for name in imports_of(path):
        if name in known and name != "tianji.":
            yield name.removeprefix("tianji.")


def test_the_package_holds_rooms_and_nothing_else():
    found = {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    assert found == {"__init__.py", "__main__.py", "py.typed", *ROOMS}


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_point_down(path):
    room = room_of(module_of(path))
    if room not in ROOMS:
        return  # the front door
    for other in ours(path):
        down = ROOMS.index(room_of(other)) <= ROOMS.index(room)
        assert down, f"{module_of(path)} imports {other}, which is not below it"


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_torch_is_imported_where_updates_are_made_and_nowhere_else(path):
    allowed = room_of(module_of(path)) in ("algorithms", "models") or module_of(path) == "core.lazy"
    imported = any(name.partition(".")[0] == "torch" for name in imports_of(path))
    assert allowed or module_of(path) == PRELOADING or not imported


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_gymnasium_is_imported_by_environments_only(path):
    imported = any(name.partition(".")[0] == "gymnasium" for name in imports_of(path))
    allowed = room_of(module_of(path)) == "envs" or module_of(path) == PRELOADING
    assert allowed or not imported


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_mpi_is_loaded_in_one_place_beside_the_peer(path):
    imported = any(name.partition(".")[0] == "mpi4py" for name in imports_of(path))
    allowed = module_of(path) in ("transports.mpi_library",)
    assert allowed or not imported


@pytest.mark.parametrize("path", sorted((PACKAGE / "roles").glob("*.py")), ids=module_of)
def test_roles_know_seams_and_no_implementation(path):
    assert {room_of(module) for module in ours(path)} <= {"core", "config", "roles"}


FORBIDDEN = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "multiprocessing"}
EXECUTING = {"eval", "exec", "compile", "__import__"}


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_nothing_is_unpickled_or_executed(path):
    assert not {name.partition(".")[0] for name in imports_of(path)} & FORBIDDEN
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            assert node.id not in EXECUTING, f"{path.name}:{node.lineno}: {node.id}"
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant) and node.value.value is False


RANDOM_MAKERS = {"default_rng", "Generator", "SeedSequence"}


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_everything_random_comes_from_a_generator_with_a_seed(path):
    assert "random" not in {name.partition(".")[0] for name in imports_of(path)}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "np.random":
            assert node.attr in RANDOM_MAKERS, f"{path.name}:{node.lineno}"


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
