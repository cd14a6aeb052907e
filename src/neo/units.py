"""Quantities with units: the only place that knows GiB, GB/s, Gbps and us.

Inside the code a size is in bytes, a time in seconds and a rate in bytes per second.
GB is 10^9 bytes, GiB is 2^30 bytes; ``Gbps`` and ``Gb/s`` are 10^9 bits per second.
"""

import math
import re
from enum import StrEnum

_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY: dict[str, int] = {f"{prefix}i": 1 << (10 * power) for power, prefix in enumerate("KMGTP", start=1)}
_PREFIX: dict[str, int] = _DECIMAL | _BINARY
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_NUMBER = r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*"
_SIZE = re.compile(_NUMBER + r"(?:([kKMGTP]i?)?B)?\s*")
_RATE_BYTES = re.compile(_NUMBER + r"([kKMGTP]i?)?B/s\s*")
_RATE_BITS = re.compile(_NUMBER + r"([kKMGTP])?b(?:ps|/s)\s*")
_TIME = re.compile(_NUMBER + r"(s|ms|us|ns)\s*")


class Unit(StrEnum):
    """What a quantity in the configuration measures."""

    BYTES = "bytes"
    BYTES_PER_S = "bytes_per_s"
    SECONDS = "seconds"


_EXAMPLE = {Unit.BYTES: "40GiB", Unit.BYTES_PER_S: "1.5TB/s or 200Gbps", Unit.SECONDS: "5us"}


def parse_quantity(text: str | float, unit: Unit) -> float:
    """Convert ``text`` to bytes, bytes per second or seconds.

    A bare ``0`` is accepted for every unit; any other bare number only for bytes.

    Raises:
        ValueError: ``text`` is no non-negative quantity of this unit; the message gives an example.
    """
    written = str(text)
    value = _parse(written, unit)
    if value is None or not math.isfinite(value):
        raise ValueError(f"cannot read '{written}' as {unit.value.replace('_', ' ')}; write it like {_EXAMPLE[unit]}")
    return value


def _parse(text: str, unit: Unit) -> float | None:
    if unit is not Unit.BYTES and re.fullmatch(_NUMBER, text) and float(text) == 0:
        return 0.0
    if unit is Unit.BYTES and (found := _SIZE.fullmatch(text)):
        return float(found[1]) * float(_PREFIX[found[2] or ""])
    if unit is Unit.BYTES_PER_S and (found := _RATE_BYTES.fullmatch(text)):
        return float(found[1]) * float(_PREFIX[found[2] or ""])
    if unit is Unit.BYTES_PER_S and (found := _RATE_BITS.fullmatch(text)):
        return float(found[1]) * float(_PREFIX[found[2] or ""]) / 8
    if unit is Unit.SECONDS and (found := _TIME.fullmatch(text)):
        return float(found[1]) * _SECONDS[found[2]]
    return None


def parse_bytes(text: str | float) -> int:
    """Convert ``'40GiB'`` to a whole number of bytes. Raises ValueError as ``parse_quantity`` does."""
    return round(parse_quantity(text, Unit.BYTES))


def format_bytes(num_bytes: float) -> str:
    """Write a size for people, in binary units: ``3.1 GiB``."""
    value = float(num_bytes)
    for prefix in ("", "Ki", "Mi", "Gi", "Ti"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if not prefix else f"{value:.1f} {prefix}B"
        value /= 1024
    return f"{value:.1f} PiB"


def format_count(count: float) -> str:
    """Write a large count for people, in decimal units: ``1.2 M``."""
    value = float(count)
    for prefix in ("", " k", " M", " G"):
        if abs(value) < 1000:
            return f"{value:.0f}" if not prefix else f"{value:.1f}{prefix}"
        value /= 1000
    return f"{value:.1f} T"
