"""The check before anything starts: one list of all mistakes in a command line and in the files it chooses."""

from collections.abc import Sequence
from dataclasses import replace

from hydra.core.override_parser.types import Override

from neo.config.composition import ConfigSource, ConfigTree, Layer, missing_folders
from neo.config.draft import Draft
from neo.config.overrides import CheckedOverrides, check_overrides, parse
from neo.config.points import SweepPoint, expand, name_points
from neo.config.purpose import Purpose
from neo.config.resolve import find_mistakes
from neo.config.schema import RECIPES
from neo.errors import Finding

_SEARCH_PATH = "hydra.searchpath"
_SWEEPER_PARAMS = "hydra.sweeper.params"


def check_command_line(
    overrides: Sequence[str],
    source: ConfigSource,
    *,
    purpose: Purpose,
    multirun: bool,
    num_started: int | None = None,
    sweeper_params: Sequence[str] = (),
) -> list[Finding]:
    """Return every mistake, each once, in the order in which they were written.

    Args:
        overrides: The override arguments as typed.
        source: Where configuration files come from.
        purpose: What the configuration is read for.
        multirun: Whether sweeps are expanded; then every point is checked.
        num_started: Ranks that something else has started; None if this command starts the workers.
        sweeper_params: Sweeps that files have in ``hydra.sweeper.params``, as ``KEY=VALUES``.
    """
    findings = missing_folders(source)
    if findings:
        source = replace(source, config_dir=None)
    parsed, malformed = _parse(overrides, sweeper_params)
    findings += malformed
    tree = ConfigTree(replace(source, search_paths=_search_paths(parsed)))
    if not multirun:
        findings += _check_point(parsed, tree, purpose, num_started)
        return list(dict.fromkeys(findings))
    points, without_points = expand(parsed, tree)
    findings += without_points
    findings += name_points([(point, _check_point(point.overrides, tree, purpose, num_started)) for point in points])
    return list(dict.fromkeys(findings))


def sweep_points(overrides: Sequence[str], source: ConfigSource, sweeper_params: Sequence[str]) -> list[SweepPoint]:
    """Return the points of a sweep whose check has found nothing; arguments as for ``check_command_line``."""
    parsed, _ = _parse(overrides, sweeper_params)
    return expand(parsed, ConfigTree(replace(source, search_paths=_search_paths(parsed))))[0]


def _parse(overrides: Sequence[str], sweeper_params: Sequence[str]) -> tuple[list[Override], list[Finding]]:
    """Parse both lists; the command line goes last, and so wins."""
    of_files, malformed = parse(sweeper_params)
    findings = [finding.under(_SWEEPER_PARAMS) for finding in malformed]
    typed, malformed = parse(overrides)
    return of_files + typed, findings + malformed


def _check_point(
    overrides: Sequence[Override], tree: ConfigTree, purpose: Purpose, num_started: int | None
) -> list[Finding]:
    checked = check_overrides(overrides, tree)
    recipes = [tree.recipe(name) for name in checked.recipes]
    findings = [finding for _, of_recipe in recipes for finding in of_recipe]
    layers: list[Layer] = []
    if not findings:
        layers, findings = tree.layers(checked.choices)
    if not layers and recipes:
        # A recipe that chooses what does not exist must not hide the mistakes elsewhere, its own among them.
        layers, others = tree.layers([choice for choice in checked.choices if choice.key_or_group != RECIPES])
        layers += [layer for layer, _ in recipes] if layers else []
        findings += others
    draft = Draft()
    for layer in layers:
        findings += draft.assign(layer.package, layer.content, source=layer.name)
    written = [*checked.findings, *_assign_values(checked, draft)]
    config, unresolved = draft.finish()
    return [*written, *findings, *unresolved, *(find_mistakes(config, purpose, num_started) if layers else ())]


def _assign_values(checked: CheckedOverrides, draft: Draft) -> list[Finding]:
    return [finding for override in checked.values for finding in draft.assign(override.key_or_group, override.value())]


def _search_paths(overrides: Sequence[Override]) -> tuple[str, ...]:
    for override in overrides:
        value = override.value()
        if override.key_or_group == _SEARCH_PATH and isinstance(value, list):
            return tuple(str(path) for path in value)
    return ()
