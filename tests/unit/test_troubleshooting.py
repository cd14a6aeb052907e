"""Every error that the source raises is in ``docs/troubleshooting.md``, and nothing else is."""

import ast
import re
from functools import cache
from pathlib import Path

from error_sites import GAP, ErrorSite, error_sites, sites_of

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
FEWEST_LETTERS = 5
OUR_BUGS = ("AssertionError", "AttributeError")


@cache
def entries() -> tuple[str, ...]:
    """Return the patterns of the page, in its order."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    for row in rows:
        assert len(re.split(r" \| ", row.strip("| "))) == 3, f"not a row of message, meaning and remedy: {row}"
    return tuple(pattern for row in rows for pattern in re.findall(r"`([^`]+)`", row.split(" | ")[0]))


def holds(text: str, pattern: str) -> bool:
    """Return whether the parts of a pattern stand in the text one after the other."""
    place = 0
    for part in pattern.split(GAP):
        place = text.find(part, place)
        if place < 0:
            return False
        place += len(part)
    return True


@cache
def sites() -> tuple[ErrorSite, ...]:
    return tuple(site for site in error_sites() if site.kind not in OUR_BUGS)


def test_every_error_has_an_entry() -> None:
    missing = [
        f"{site.place}: {site.text}" for site in sites() if not any(holds(site.text, pattern) for pattern in entries())
    ]
    assert missing == [], "add to docs/troubleshooting.md what these mean and what to do:\n" + "\n".join(missing)


def test_every_entry_has_an_error() -> None:
    texts = [site.text for site in sites()]
    stale = [pattern for pattern in entries() if not any(holds(text, pattern) for text in texts)]
    assert stale == [], f"no error has these texts any more; remove them from docs/troubleshooting.md: {stale}"


def test_every_entry_says_something() -> None:
    vague = [pattern for pattern in entries() if sum(letter.isalpha() for letter in pattern) < FEWEST_LETTERS]
    assert vague == []
    assert len(entries()) == len(set(entries()))


def test_the_walk_finds_errors_in_every_form() -> None:
    source = """
def refuse(key, value):
    problem = f"{value} is too small" if value else "nothing is given"
    found = Finding(key, problem, "write more")
    raise DataError(f"the file {key} " + "is broken")

def other():
    raise ConfigError([found])
"""
    found = [(site.kind, site.text) for site in sites_of(ast.parse(source), "x.py")]
    assert found == [
        ("Finding", "… is too small"),
        ("Finding", "nothing is given"),
        ("DataError", "the file … is broken"),
    ]
