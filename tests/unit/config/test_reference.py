"""``docs/configuration.md`` is what the schema says, and says something about every key."""

from dataclasses import dataclass, is_dataclass
from pathlib import Path

import pytest

from neo.config import reference
from neo.config.schema import schema_types

ROOT = Path(__file__).parents[3]


@dataclass
class Described:
    """A class.

    Attributes:
        first: One line of ``code``.
        second: Two lines, of which
            this is the second; None is nothing.

    More prose: not an attribute.
    """

    first: int = 1


def test_the_page_is_up_to_date() -> None:
    written = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert written == reference.page(), f"docs/configuration.md is out of date; run: {reference.COMMAND}"


def test_every_key_has_a_meaning() -> None:
    missing = reference.missing_meanings()
    assert missing == [], f"say what {missing} mean, under Attributes in the docstring of their configuration class"


def test_the_page_has_every_key_once() -> None:
    leaves = [key for key, hint in schema_types().items() if not is_dataclass(hint)]
    assert sorted(entry.key for entry in reference.key_entries()) == sorted(leaves)


def test_limits_choices_and_defaults_are_those_of_the_checks() -> None:
    entries = {entry.key: entry for entry in reference.key_entries()}
    assert entries["model.embedding_dim"].allowed == "1 to 2^20"
    assert entries["model.embedding_dim"].default == "null (16)"
    assert entries["model.pooling"].allowed == "mean, sum"
    assert entries["optim.sparse.lr"].allowed == "0 or more"
    assert entries["optim.sparse.beta1"].allowed == "[0, 1)"
    assert entries["hardware.scale_up.latency"].meaning == "Time of an empty message."
    assert entries["trainer.progress_bar"].kind == "true or false"


def test_attributes_of_a_docstring() -> None:
    assert reference.attributes_of(Described) == {
        "first": "One line of `code`.",
        "second": "Two lines, of which this is the second; null is nothing.",
    }


def test_the_command_writes_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)
    reference.main()
    assert (tmp_path / "docs" / "configuration.md").read_text(encoding="utf-8") == reference.page()
    assert capsys.readouterr().out == "wrote docs/configuration.md\n"
