"""What every ``validate()`` of a configuration group asks: values within limits, and no setting without effect."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from neo.as_typed import as_typed
from neo.errors import Finding

MAX_ROWS = 2**48
"""Rows of one table."""
MAX_DIM = 2**20
"""Columns of one table, units of one layer."""
MAX_RANKS = 2**16
"""Ranks of one plan or run."""
MAX_STEPS = 2**62
"""Steps, epochs and samples: what 64-bit arithmetic counts with room to spare."""

Limits = Mapping[str, tuple[float, float]]


def outside(key: str, value: float, low: float, high: float = math.inf) -> list[Finding]:
    """Return a finding if ``value`` is below ``low``, above ``high``, or no finite number."""
    fix = f"write {_written(low)} " + ("or more" if high == math.inf else f"to {_written(high)}")
    if isinstance(value, float) and not math.isfinite(value):  # An int may be too large for a float.
        return [Finding(key, f"{value} is not a finite number", fix)]
    if value < low:
        return [Finding(key, f"{value} is below the limit {_written(low)}", fix)]
    if value > high:
        return [Finding(key, f"{value} is above the limit {_written(high)}", fix)]
    return []


def outside_limits(config: object, limits: Limits) -> list[Finding]:
    """Return a finding for each field of ``config`` that is outside its limits, both inclusive; None is none."""
    values = {key: getattr(config, key) for key in limits}
    return [
        finding for key, value in values.items() if value is not None for finding in outside(key, value, *limits[key])
    ]


def empty_paths(config: object, keys: Sequence[str]) -> list[Finding]:
    """Return a finding for each path that is an empty text, which would mean the current folder."""
    fix = "name it, or write null (an unset variable of a shell leaves nothing)"
    return [Finding(key, "'' names no file or folder", fix) for key in keys if getattr(config, key) == ""]


def without_effect(config: Any, unread: Mapping[str, Sequence[str]], chosen: str) -> list[Finding]:
    """Return a finding for each of the keys that differs from its default although ``chosen`` does not read it.

    Args:
        config: A dataclass instance.
        unread: Its fields that have no effect, each with the names that do read it.
        chosen: The name of what was chosen: ``sgd``.
    """
    defaults = {
        entry.name: entry.default if entry.default_factory is MISSING else entry.default_factory()
        for entry in fields(config)
    }
    return [
        Finding(
            key,
            f"{as_typed(value)} has no effect on '{chosen}'",
            f"leave it at {as_typed(defaults[key])}, or use {' or '.join(names)}",
        )
        for key, names in unread.items()
        if (value := getattr(config, key)) != defaults[key]
    ]


def unread(reads: Mapping[str, Sequence[str]], name: str) -> dict[str, list[str]]:
    """Return the keys that ``name`` does not read, each with the names that do; none for an unknown name."""
    if name not in reads:
        return {}
    keys = sorted({key for of_one in reads.values() for key in of_one} - set(reads[name]))
    return {key: [other for other, of_one in reads.items() if key in of_one] for key in keys}


def in_unit_interval(config: object, names: Sequence[str]) -> list[Finding]:
    """Return a finding for each of these fields of ``config`` that is outside [0, 1)."""
    values = {name: getattr(config, name) for name in names}
    return [Finding(name, f"{value} is outside [0, 1)") for name, value in values.items() if not 0 <= value < 1]


def _written(limit: float) -> str:
    """Return a limit as it can be typed; large powers of two are told as such."""
    if limit >= 2**20 and math.log2(limit).is_integer():
        return f"2^{int(math.log2(limit))}"
    return f"{limit:g}" if isinstance(limit, float) else str(limit)
