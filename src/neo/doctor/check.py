"""What one check of ``neo doctor`` finds. Torch-free."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum


class State(StrEnum):
    """``WARN``: neo runs, slower or with less; ``FAIL``: something that runs need does not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What it is.
        state: Whether it works.
        found: What was found: versions, sizes, times, or the error.
        fix: What to do, if it is not well.
    """

    name: str
    state: State
    found: str
    fix: str = ""

    def to_json(self) -> str:
        """Return the check as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> "Check":
        """Read what ``to_json`` wrote.

        Raises:
            ValueError: The line is something else.
        """
        content = json.loads(line)
        if not isinstance(content, dict) or set(content) != {"name", "state", "found", "fix"}:
            raise ValueError(f"not a check: {line}")
        return cls(content["name"], State(content["state"]), content["found"], content["fix"])


@dataclass(frozen=True)
class Verdict:
    """The checks together.

    Attributes:
        works: Whether no check failed.
        text: One sentence.
        fix: What to do first; empty if all is well.
    """

    works: bool
    text: str
    fix: str

    @property
    def exit_code(self) -> int:
        """0 if neo works here, else 1."""
        return 0 if self.works else 1


def verdict_of(checks: list[Check]) -> Verdict:
    """Return the verdict: the first failure is the one to mend first, since later checks build on earlier ones."""
    failed = [check for check in checks if check.state is State.FAIL]
    warned = [check for check in checks if check.state is State.WARN]
    if failed:
        first, others = failed[0], len(failed) - 1
        more = f" ({others} more check{'' if others == 1 else 's'} failed)" if others else ""
        return Verdict(False, f"neo does not work here: {first.name}: {first.found}{more}", first.fix)
    if warned:
        named = ", ".join(check.name for check in warned)
        return Verdict(True, f"neo works here, with less than it could have: {named}", warned[0].fix)
    return Verdict(True, "neo works here", "")
