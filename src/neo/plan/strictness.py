"""``strict=true``: whatever is replaced by something else is a mistake in the configuration."""

from collections.abc import Iterable

from neo.errors import Finding


def strict_findings(fallbacks: Iterable[str]) -> list[Finding]:
    """Return one finding per distinct fallback.

    Args:
        fallbacks: What was replaced, and why, in words.
    """
    fix = "ask for what runs, or leave strict out"
    return [Finding("strict", f"true refuses a fallback: {line}", fix) for line in dict.fromkeys(fallbacks)]
