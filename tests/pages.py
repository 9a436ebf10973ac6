"""The pages of the documentation, and the blocks of code in them."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(
    r"`tianji ((?:train|plan|resume|eval|verify|report|trace|export|doctor|slurm)[^`]*)`"
)
VARIABLE = re.compile(r"\$\w+")  # of the shell; any number will do in its place
STARTERS = re.compile(r"^(exec|srun(\s+--?\S+)*)\s+")  # what may stand before a command of ours


@dataclass(frozen=True)
class Block:
    """A fenced block; blocks of one page are numbered by their language, shells as one."""

    page: str
    number: int
    language: str
    text: str

    @property
    def name(self):
        return f"{self.page}-{self.number}"

    @property
    def is_config(self):
        """It describes an experiment: it is read, not executed."""
        return bool(re.search(r"^environment\s*=", self.text, re.M))

    @property
    def is_script(self):
        """It is a whole file for a job scheduler."""
        return self.text.startswith("#!")

    @property
    def is_output(self):
        """It shows what was printed, a formula or a drawing."""
        return self.language in ("text", "")


def blocks_of(page):
    """The blocks of one page, in order."""
    found, numbers = [], {}
    for language, text in FENCE.findall(page.read_text(encoding="utf-8")):
        kind = "bash" if language == "sh" else language
        number = numbers[kind] = numbers.get(kind, -1) + 1
        found.append(Block(page.name, number, language, text))
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
SHELL = [block for block in BLOCKS if block.language in ("bash", "sh")]


def lines_of(block):
    """The command lines of a block, with continued ones in one piece."""
    joined = block.text.replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip()]


def commands_of(block):
    """The words after `tianji` in each line that is a command of ours."""
    found = []
    for line in lines_of(block):
        command = VARIABLE.sub("1", STARTERS.sub("", line))
        if command.startswith("tianji "):
            found.append(shlex.split(command, comments=True)[1:])
    return found


def inline_commands(page):
    """The commands that stand in sentences, where nothing in them is left open."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found = [" ".join(command.split()) for command in INLINE.findall(text)]
    whole = [c for c in found if not re.search(r"\.\.\.|\[", c) and (" " in c or c == "doctor")]
    return [(page.name, shlex.split(command)) for command in whole]
