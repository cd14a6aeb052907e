"""Values in messages: as they are typed on the command line, not as Python writes them."""

from collections.abc import Mapping
from typing import Any

_MOST_CHARACTERS = 80


def as_typed(value: Any) -> str:
    """Return ``null``, ``true``, ``[a,b]``, ``{k:v}`` …; what is very long is cut."""
    text = _typed(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


def quoted(value: Any) -> str:
    """Return ``value`` as typed, in quotes unless it is null."""
    return "null" if value is None else f"'{as_typed(value)}'"


def _typed(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{_typed(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_typed, value)) + "]"
    return str(value)
