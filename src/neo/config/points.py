"""The points of a sweep, and how a mistake says which of them have it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from neo.config.composition import ConfigTree
from neo.errors import Finding

_MOST_NUMBERS = 6
_OF_THE_SWEEP = "sweep"


@dataclass(frozen=True)
class SweepPoint:
    """One run of a sweep.

    Attributes:
        number: Its place, from 0: Hydra's job number.
        overrides: Its whole command line, free of sweeps.
        swept: The keys that a sweep gives a value, and that value, as typed.
    """

    number: int
    overrides: tuple[Override, ...]
    swept: tuple[tuple[str, str], ...]

    @property
    def texts(self) -> list[str]:
        """The overrides as typed, Hydra's own left out: those are given once for the whole sweep."""
        return [override.input_line or "" for override in self.overrides if not override.is_hydra_override()]

    @property
    def label(self) -> str:
        """``sharding=row_wise trainer.devices=2``."""
        return label(self.swept)


def expand(overrides: Sequence[Override], tree: ConfigTree) -> tuple[list[SweepPoint], list[Finding]]:
    """Return the points of a sweep, as Hydra's own sweeper makes them, and what keeps an override from having any."""
    plain, findings = [], []
    for override in overrides:
        override = replace(override, config_loader=tree.loader)  # ``glob(*)`` looks for the names of a group.
        if (finding := _without_points(override)) is not None:
            findings.append(finding)
        else:
            plain.append(override)
    swept = {override.key_or_group for override in plain if override.is_sweep_override()}
    parser = OverridesParser.create()
    points = []
    for number, texts in enumerate(BasicSweeper.split_arguments(plain, None)[0]):
        parsed = tuple(parser.parse_overrides(texts))
        values = tuple((o.key_or_group, _value(o)) for o in parsed if o.key_or_group in swept)
        points.append(SweepPoint(number, parsed, values))
    return points, findings


def _value(override: Override) -> str:
    return (override.input_line or "").partition("=")[2]


def _without_points(override: Override) -> Finding | None:
    """Return what keeps a sweep from being a list of points, or None; overrides that are no sweeps are fine."""
    if not override.is_sweep_override():
        return None
    key, fix = override.key_or_group, "use choice(a,b) or range(1,4)"
    if override.is_hydra_override() or key.partition(".")[0] == _OF_THE_SWEEP:
        problem = f"'{override.input_line}' is about the whole sweep and cannot differ between its points"
        return Finding(key, problem, "give it one value")
    if not override.is_discrete_sweep():
        return Finding(key, f"'{override.input_line}' is no list of points", fix)
    try:
        points = list(islice(override.sweep_string_iterator(), 1))
    except (HydraException, ValueError, TypeError) as error:
        return Finding(key, f"'{override.input_line}' cannot be expanded: {str(error).splitlines()[0]}", fix)
    return None if points else Finding(key, f"'{override.input_line}' matches nothing", fix)


def name_points(found: Sequence[tuple[SweepPoint, Sequence[Finding]]]) -> list[Finding]:
    """Return each finding once; one that only some points have names them.

    Args:
        found: Every point of the sweep and its findings.
    """
    having: dict[Finding, list[SweepPoint]] = {}
    for point, findings in found:
        for finding in dict.fromkeys(findings):
            having.setdefault(finding, []).append(point)
    return [
        finding if len(points) == len(found) else replace(finding, key=f"{_named(points)}: {finding.key}")
        for finding, points in having.items()
    ]


def _named(points: Sequence[SweepPoint]) -> str:
    numbers = ", ".join(str(point.number) for point in points[:_MOST_NUMBERS])
    more = f", … ({len(points)} points)" if len(points) > _MOST_NUMBERS else ""
    shared = [pair for pair in points[0].swept if all(pair in point.swept for point in points)]
    values = f" ({label(shared)})" if shared else ""
    return f"point{'' if len(points) == 1 else 's'} {numbers}{more}{values}"


def label(swept: Sequence[tuple[str, str]]) -> str:
    """Return keys and values as typed: ``sharding=row_wise trainer.devices=2``."""
    return " ".join(f"{key}={value}" for key, value in swept)
