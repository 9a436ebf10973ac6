"""What the documentation shows can be read by Python, parsed as a command and clicked on."""

import ast
import re
import subprocess
import sys

import pytest
from commands import ROOT
from pages import BLOCKS, PAGES, PYTHON, SHELL, Block, commands_of, inline_commands

import tianji
from tianji.cli.main import parser
from tianji.config import load

PACKAGE = ROOT / "tianji"
LINK = re.compile(r"\]\(([^)\s]+)\)")
CONFIGS = [block for block in PYTHON if block.is_config]
MENTIONED = [each for page in PAGES for each in inline_commands(page)]


def name(block):
    return block.name


@pytest.mark.parametrize("block", PYTHON, ids=name)
def test_a_python_block_is_python(block):
    ast.parse(block.text)


@pytest.mark.parametrize("block", CONFIGS, ids=name)
def test_a_config_block_loads(block, tmp_path):
    path = tmp_path / "shown.py"
    path.write_text(block.text, encoding="utf-8")
    assert load(str(path)).notices == ()


@pytest.mark.parametrize("block", SHELL, ids=name)
def test_every_command_of_a_block_is_one(block):
    found = commands_of(block)
    assert found or block.name in WITHOUT_TIANJI, "nothing in it is a command of ours"
    for words in found:
        parser(words).parse_args(words)


WITHOUT_TIANJI = {  # blocks that tell how to install, or start a script of bench/
    "README.md-0": "make",
    "README.md-5": "pip",
    "transmission.md-0": "python",
    "transmission.md-1": "python",
    "transmission.md-2": "python",
}


@pytest.mark.parametrize("page, words", MENTIONED, ids=lambda each: str(each)[:40])
def test_every_command_in_a_sentence_is_one(page, words):
    parser(words).parse_args(words)


def test_every_block_is_of_a_kind_that_is_tested():
    kinds = {block.language for block in BLOCKS}
    assert kinds <= {"python", "bash", "sh", "text", ""}, "how would a test run that?"
    assert len(PYTHON) + len(SHELL) + sum(b.is_output for b in BLOCKS) == len(BLOCKS)
    assert len(MENTIONED) > 20 and len(CONFIGS) >= 4


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        if anchor:
            assert anchor in headings(target), link


def headings(page):
    """The anchors of a page, as they are made of its headings."""
    found = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in found}


def test_every_page_can_be_reached_from_the_front_page():
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop().resolve()
        if page not in reached:
            reached.add(page)
            links = LINK.findall(page.read_text(encoding="utf-8"))
            found = (page.parent / link.partition("#")[0] for link in links if "://" not in link)
            todo += [path for path in found if path.suffix == ".md" and path.exists()]
    assert {page.resolve() for page in PAGES} <= reached


def test_the_pages_show_an_environment_an_algorithm_and_their_configs():
    shown = {block.name for block in CONFIGS}
    assert {"own-environment.md-1", "own-algorithm.md-1"} <= shown


# The tour names methods, and what they call: nothing of that may be out of date.

TOUR = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`]+)`")


def rows(header):
    """The rows of every table of the tour whose header begins with these columns."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", TOUR, re.M):
        first, _, *rest = [
            [cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()
        ]
        if header(first):
            found += [dict(zip(first, cells, strict=True)) for cells in rest]
    return found


METHODS = rows(lambda first: "file" in first and "method" in first)


def names_in(path):
    """Functions and methods of a module, as `function` and `Class.method`."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{f.name}" for f in node.body if isinstance(f, ast.FunctionDef)}
    return found


@pytest.mark.parametrize("row", METHODS, ids=lambda row: row["method"].replace("`", ""))
def test_a_method_of_the_tour_is_where_it_is_said_to_be(row):
    (file,) = CODE.findall(row["file"])
    methods = CODE.findall(row["method"])
    assert methods and set(methods) <= names_in(PACKAGE / file)


CALLS = [
    row for row in METHODS if CODE.findall(row.get("what happens", row.get("in the code", "")))
]


@pytest.mark.parametrize("row", CALLS, ids=lambda row: row["method"].replace("`", ""))
def test_a_call_of_the_tour_is_made_there(row):
    (file,) = CODE.findall(row["file"])
    source = (PACKAGE / file).read_text(encoding="utf-8")
    made = {ast.unparse(node.func) for node in ast.walk(ast.parse(source)) if is_call(node)}
    made |= {call.partition(".")[2] for call in made}  # without self
    for name in CODE.findall(row.get("what happens", row.get("in the code", ""))):
        assert name.removesuffix("()") in made, f"{file} does not call {name}"


def is_call(node):
    return isinstance(node, ast.Call)


def test_the_tour_follows_a_sample_in_five_hops():
    assert [row["hop"] for row in METHODS if "what happens" in row] == list("12345")
    assert [row["step"] for row in METHODS if "in the code" in row] == list("1234567")


def test_the_picture_shows_every_room():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    picture = text.split("```")[1]
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert rooms <= set(re.findall(r"\w+", picture))
    for file in re.findall(r"`([a-z_]+/[a-z_]+\.py)`", text):
        assert (PACKAGE / file).exists(), file


def test_a_block_knows_where_it_stands():
    block = Block("README.md", 3, "bash", "tianji train a.py --seed 2  # why\n")
    assert block.name == "README.md-3"
    assert commands_of(block) == [["train", "a.py", "--seed", "2"]]


def imported_from_us(tree):
    """Modules of ours that code imports, and names that it looks up in `tianji`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith("tianji."))
        elif isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "tianji":
            yield from (f"{node.module}:{each.name}" for each in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "tianji":
            yield f"tianji:{node.attr}"


def test_docs_and_examples_come_in_by_the_front_door():
    shown = {block.name: block.text for block in PYTHON}
    shown |= {path.name: path.read_text() for path in sorted((ROOT / "examples").glob("*.py"))}
    doors = {f"tianji:{name}" for name in tianji.__all__}
    others = {
        f"{name}: {used}"
        for name, text in shown.items()
        for used in imported_from_us(ast.parse(text))
        if used not in doors
    }
    assert not others


def test_the_page_about_python_names_all_of_the_front_door():
    page = (ROOT / "docs" / "api.md").read_text()
    listed = set(re.findall(r"`(\w+)`", page))
    assert set(tianji.__all__) - {"__version__"} <= listed


def test_every_name_of_the_front_door_is_there_and_loads_nothing_heavy(child_env):
    code = "import sys, tianji; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=child_env, capture_output=True, text=True, check=True
    )
    assert not set(done.stdout.split()) & {"torch", "gymnasium", "rich", "numpy"}
    for name in tianji.__all__:
        assert getattr(tianji, name) is not None
