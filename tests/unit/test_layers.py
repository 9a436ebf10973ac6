"""Imports point down only, heavy libraries load only where they are needed, and bytes stay data."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "tianji"
FILES = sorted(PACKAGE.rglob("*.py"))

# From the ground up. A module may import from rows below its own, and from its own row only where
# it is of the same package. The four packages above the bases never import each other.
LAYERS = (
    ("errors", "lazy", "stats", "appending", "tracker", "signals", "status", "banners", "columns"),
    ("wholefile", "wording", "decisions"),
    ("episodefile", "svg", "terminal", "disk", "trials"),
    ("schema", "imports", "events", "mpirun", "hostfile"),
    ("state", "shepherd"),
    ("tensorfile",),
    ("checkpoint",),
    ("channel", "store", "balance", "balancer", "trigger", "counts", "config"),
    ("replay", "rollouts", "consumption", "envs.base", "roster", "folder", "report"),
    ("resources", "sinks", "dashboard", "planning"),
    ("placement", "simulation", "notices"),
    ("slurm",),
    ("algorithms.base", "episodes", "trajectory", "role", "shards"),
    ("exchange", "fusion", "fitting", "standin"),
    ("roles", "reducer", "transports", "algorithms", "models", "envs", "evaluation"),
    ("evaluator", "memory", "weights", "advice"),
    ("saving", "resuming"),
    ("job",),
    ("channels",),
    ("topology",),
    ("serial", "watch", "trial", "trained", "tracing"),
    ("keeper", "examiner", "times"),
    ("rates",),
    ("metrics", "capacity"),
    ("bottleneck",),
    ("rebalance",),
    ("panel", "video"),
    ("view",),
    ("summary",),
    ("run",),
    ("scores",),
    ("engines", "outcome"),
    ("probing", "starting"),
    ("worker", "launch", "export", "doctor", "transmission", "equivalence"),
    ("verbs",),
    ("cli",),
    ("__main__",),
)
ALONGSIDE = {("algorithms", "models")}

PEERS = "transmission.peers."  # measure what pickling costs others, in processes of their own
PRELOADING = "engines.roles"  # loads what a role will need while the launcher works out the sizes


def module_of(path):
    """`engines.local` for tianji/engines/local.py."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def unit_of(module):
    """The name under which a module stands in LAYERS."""
    names = [name for layer in LAYERS for name in layer]
    return module if module in names else module.partition(".")[0]


def row_of(unit):
    rows = [i for i, layer in enumerate(LAYERS) if unit in layer]
    assert rows, f"{unit} has no place in LAYERS yet: what may it import, and who may import it?"
    return rows[0]


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
    """The units of this package that a file imports."""
    known = {f"tianji.{module_of(file)}" for file in FILES}
    for name in imports_of(path):
        if name in known and name != "tianji.":
            yield unit_of(name.removeprefix("tianji."))


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_point_down(path):
    unit = unit_of(module_of(path))
    if not unit:
        return
    for other in set(ours(path)) - {unit}:
        down = row_of(other) < row_of(unit) or (unit, other) in ALONGSIDE
        assert down, f"{module_of(path)} imports {other}, which is not below it"


def test_every_row_names_what_there_is_and_names_it_once():
    names = [name for layer in LAYERS for name in layer]
    assert sorted(names) == sorted({unit_of(module_of(path)) for path in FILES} - {""})


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_torch_is_imported_where_updates_are_made_and_nowhere_else(path):
    allowed = unit_of(module_of(path)) in ("algorithms", "models", "lazy")
    imported = any(name.partition(".")[0] == "torch" for name in imports_of(path))
    assert allowed or module_of(path) == PRELOADING or not imported


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_gymnasium_is_imported_by_environments_only(path):
    imported = any(name.partition(".")[0] == "gymnasium" for name in imports_of(path))
    allowed = unit_of(module_of(path)) == "envs" or module_of(path) == PRELOADING
    assert allowed or not imported


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_mpi_is_loaded_in_one_place_beside_the_peer(path):
    imported = any(name.partition(".")[0] == "mpi4py" for name in imports_of(path))
    allowed = module_of(path) in ("transports.mpilibrary", f"{PEERS}pickled_mpi")
    assert allowed or not imported


def test_roles_know_seams_and_no_implementation():
    units = set(ours(PACKAGE / "roles.py"))
    assert not units & {"transports", "engines", "envs", "algorithms", "models", "topology"}
    assert {"envs.base", "algorithms.base", "channel"} <= units


FORBIDDEN = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "multiprocessing"}
EXECUTING = {"eval", "exec", "compile", "__import__"}


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_nothing_is_unpickled_or_executed(path):
    forbidden = FORBIDDEN - (
        {"multiprocessing"} if module_of(path) == f"{PEERS}mp_queue" else set()
    )
    assert not {name.partition(".")[0] for name in imports_of(path)} & forbidden
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            assert node.id not in EXECUTING, f"{path.name}:{node.lineno}: {node.id}"
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant) and node.value.value is False


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_nobody_but_the_benchmark_loads_the_peers(path):
    allowed = module_of(path).startswith(("transmission.carriers", PEERS))
    assert allowed or not any(f"{name}.".startswith(f"tianji.{PEERS}") for name in imports_of(path))


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
    "module", ["tianji.roles", "tianji.reducer", "tianji.transports.shm", "tianji.config"]
)
def test_an_actors_modules_load_nothing_heavy(module, child_env):
    heavy = {"torch", "gymnasium", "rich", "mpi4py", "safetensors"}
    assert not loaded_by(module, child_env) & heavy
