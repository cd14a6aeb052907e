"""The errors a user of neo can meet, and the exit code that each one means."""

import difflib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One mistake in the configuration: where it is, what is wrong, and what to write instead.

    Attributes:
        key: The dotted configuration key as it is typed on the command line.
        problem: What is wrong with the value, naming the value and the limit.
        fix: What to type instead; empty where ``problem`` already says so.
    """

    key: str
    problem: str
    fix: str = ""

    def under(self, prefix: str) -> "Finding":
        """Return the same finding with ``prefix.`` in front of its key."""
        return Finding(f"{prefix}.{self.key}" if self.key else prefix, self.problem, self.fix)

    def __str__(self) -> str:
        return f"{self.key}: {self.problem}" + (f"; {self.fix}" if self.fix else "")


NOT_BUILT = "is not built yet"
"""The problem with a name that is planned and that no version has yet."""


class NeoError(Exception):
    """Base of every error that neo raises on purpose."""

    exit_code = 1


class ConfigError(NeoError):
    """The configuration is wrong; nothing was started. Carries every finding, not only the first."""

    exit_code = 2

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        count = len(self.findings)
        head = f"{count} mistake{'' if count == 1 else 's'} in the configuration:"
        super().__init__("\n".join([head, *(f"  {finding}" for finding in self.findings)]))


class InfeasiblePlanError(NeoError):
    """No placement fits the memory of the machine."""

    exit_code = 3


class UnknownNameError(NeoError):
    """A name that is in no registry."""


class UnsupportedError(NeoError):
    """A combination that no installed backend can execute."""


class DivergedError(NeoError):
    """The training loss is not finite: going on is of no use."""


class NotTrainedError(NeoError):
    """A run that was to show that it trains did not: names what stood still."""


class DataError(NeoError):
    """The data is not what the configuration says: names file, place, column and value."""


class CheckpointError(NeoError):
    """A checkpoint is incomplete, damaged, of another model, or cannot be written: names the file and what differs."""


def nearest(name: str, choices: Iterable[str], *, cutoff: float) -> list[str]:
    """Return the choice nearest to ``name``, or none: one that differs in its case alone goes first.

    Args:
        name: What was written.
        choices: What it can be.
        cutoff: How alike they have to be, from 0 to 1.
    """
    by_folded: dict[str, str] = {}
    for choice in choices:
        by_folded.setdefault(choice.casefold(), choice)
    near = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=cutoff)
    return [by_folded[folded] for folded in near]


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Return ``did you mean 'x'? Choices: ...`` for a name that is not among ``choices``."""
    ordered = sorted(choices)
    near = nearest(name, ordered, cutoff=0.5)
    listed = "Choices: " + (", ".join(ordered) if ordered else "none")
    return f"did you mean '{near[0]}'? {listed}" if near else listed


def unknown_name(key: str, name: str, kind: str, choices: Iterable[str], *, planned: Collection[str] = ()) -> Finding:
    """Return the finding for a name that is not among ``choices``, with the nearest one.

    Args:
        key: The key that has it.
        name: The name.
        kind: What it should have been.
        choices: The names there are.
        planned: Names that will be there one day: of them only that is said, and no nearest name.
    """
    if name in planned:
        return Finding(key, f"'{name}' {NOT_BUILT}", f"Choices: {', '.join(sorted(choices))}")
    article = "an" if kind[0] in "aeiou" else "a"
    return Finding(key, f"'{name}' is not {article} {kind}", did_you_mean(name, choices))
