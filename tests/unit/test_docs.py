"""What the documentation shows can be read by Python, loaded as a config and clicked on."""

import ast
import re
from pathlib import Path

import pytest

from tianji.config import load

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("README.md"), *ROOT.glob("docs/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

BLOCKS = [
    pytest.param(block, id=f"{page.name}-{i}")
    for page in PAGES
    for i, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")))
]
CONFIGS = [block for block in BLOCKS if re.search(r"^environment\s*=", block.values[0], re.M)]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_python_block_is_python(block):
    ast.parse(block)


@pytest.mark.parametrize("block", CONFIGS)
def test_a_config_block_loads(block, tmp_path):
    path = tmp_path / "shown.py"
    path.write_text(block, encoding="utf-8")
    assert load(str(path)).notices == ()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_to_one(page):
    links = LINK.findall(page.read_text(encoding="utf-8"))
    files = [link.partition("#")[0] for link in links if "://" not in link]
    missing = [name for name in files if name and not (page.parent / name).exists()]
    assert not missing


def test_the_pages_show_an_environment_an_algorithm_and_their_configs():
    shown = {block.id for block in CONFIGS}
    assert {"own-environment.md-1", "own-algorithm.md-1"} <= shown
