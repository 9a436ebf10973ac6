"""The help of every verb: argparse formats it only when somebody asks."""

import pytest

from tianji.cli import VERBS, parser


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_its_options(verb, capsys):
    """A single percent sign in one of them once ended in a traceback."""
    with pytest.raises(SystemExit) as ended:
        parser([verb]).parse_args([verb, "--help"])
    assert ended.value.code == 0
    assert f"tianji {verb}" in capsys.readouterr().out
