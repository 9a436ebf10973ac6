"""The help of every verb: argparse formats it only when somebody asks."""

import pytest

from tianji.cli.main import VERBS, main, parser


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_its_options(verb, capsys):
    """A single percent sign in one of them once ended in a traceback."""
    with pytest.raises(SystemExit) as ended:
        parser([verb]).parse_args([verb, "--help"])
    assert ended.value.code == 0
    assert f"tianji {verb}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("paln", "invalid choice: 'paln'. Did you mean 'plan'?"),
        ("xyz", "invalid choice: 'xyz'. There are: bench, "),
    ],
)
def test_a_verb_that_is_none_is_answered_with_the_nearest(word, said, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main([word]) == 2
    assert said in capsys.readouterr().err


def test_the_help_of_trace_has_the_default_of_its_seconds(capsys):
    with pytest.raises(SystemExit):
        parser(["trace"]).parse_args(["trace", "--help"])
    assert "`train --trace` was to keep, 2 unless" in " ".join(capsys.readouterr().out.split())
    kept = parser(["train"]).parse_args(["train", "my_job.py", "--trace"]).trace
    assert float(kept) == 2.0
