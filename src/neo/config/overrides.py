"""The form of every override on the command line: syntax, prefix, group choices."""

from collections.abc import Sequence
from dataclasses import dataclass, field, is_dataclass

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException

from neo.as_typed import as_typed, quoted
from neo.config.composition import ConfigTree, names_of
from neo.config.draft import unknown_key
from neo.config.schema import GROUPS, RECIPES, below_free_mapping, schema_types
from neo.errors import Finding, did_you_mean, nearest

_ADDS = (OverrideType.ADD, OverrideType.FORCE_ADD)
_SLURM = "install hydra-submitit-launcher, or neo-zionex with its extra: neo-zionex[slurm]"
_NEEDS = {"hydra/launcher=submitit_slurm": _SLURM, "hydra/launcher=submitit_local": _SLURM}
"""Choices that a package adds which may be missing, and how to get it."""


@dataclass
class CheckedOverrides:
    """What a command line asks for, and what is wrong with its form.

    Attributes:
        choices: Overrides that choose in groups, Hydra's among them. A wrong choice with a near name is replaced by
            that name, so that the rest of the command can be judged.
        values: Overrides that set keys of the schema; their values are not looked at yet.
        findings: The mistakes.
    """

    choices: list[Override] = field(default_factory=list)
    values: list[Override] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def recipes(self) -> list[str]:
        """Names of the chosen recipes."""
        chosen = [override.value() for override in self.choices if override.key_or_group == RECIPES]
        return [str(name) for value in chosen for name in (value if isinstance(value, list) else [value])]


def parse(texts: Sequence[str]) -> tuple[list[Override], list[Finding]]:
    """Return the overrides that can be parsed, and a finding for each that cannot."""
    parser = OverridesParser.create()
    parsed, findings = [], []
    for text in texts:
        try:
            override = parser.parse_override(text)
            if override.key_or_group:
                parsed.append(override)
            else:
                findings.append(_malformed(text, HydraException("no key")))
        except (HydraException, ValueError) as error:
            findings.append(_malformed(text, error))
    return parsed, findings


def check_overrides(overrides: Sequence[Override], tree: ConfigTree) -> CheckedOverrides:
    """Sort the overrides of one run into choices and values, and find what is wrong with their form."""
    checked = CheckedOverrides()
    for override in overrides:
        if override.is_hydra_override():
            if "/" in override.key_or_group and override.value() is None:
                checked.choices.append(override)
            elif "/" in override.key_or_group:
                _check_choice(override, tree, checked)
            continue
        finding = _wrong_form(override)
        if finding is not None:
            checked.findings.append(finding)
        elif override.key_or_group in (*GROUPS, RECIPES):
            _check_choice(override, tree, checked)
        else:
            checked.values.append(override)
    return checked


def _malformed(text: str, error: Exception) -> Finding:
    key, equals, value = text.partition("=")
    if not key.strip("+~ "):
        return Finding(text, "has no key", "write KEY=VALUE")
    if not equals:
        bare = text.lstrip("+~")
        adds = bare == RECIPES or below_free_mapping(bare)
        return Finding(text, "is not an override", f"write {text if adds else bare}=VALUE")
    if key.strip() != key:
        return Finding(text, "has blanks around its key", "write KEY=VALUE")
    reason = str(error).splitlines()[0]
    if any(value.count(opening) > value.count(closing) for opening, closing in ("[]", "{}", "()")):
        return Finding(key, f"'{value}' has an open bracket", "close it, and quote the override for the shell")
    fix = f"quote it for Hydra and for the shell: '{key}=\"{value}\"'"
    return Finding(key, f"'{value}' cannot be parsed ({reason})", fix)


def _wrong_form(override: Override) -> Finding | None:
    key, text = override.key_or_group, override.input_line or ""
    if override.package is not None:
        written = f"+{key}" if key == RECIPES else key
        return Finding(key, f"'{text}' moves a group to another place", f"write {written}=NAME")
    if override.is_sweep_override():
        return Finding(key, f"'{text}' is a sweep", "add -m to run every point, or write a list as [a,b]")
    if override.type is OverrideType.DEL:
        return Finding(key, f"'{text}' removes a key; every key is needed", f"give it a value: {key}=VALUE")
    if below_free_mapping(key):
        return _wrong_table_override(override, key, text)
    if key == RECIPES and override.type is not OverrideType.ADD:
        return Finding(key, f"'{text}' has to add the recipe", f"write +{text.lstrip('+')}")
    if key != RECIPES and override.type in _ADDS:
        return _wrong_addition(key, text, override.value())
    return None


def _wrong_table_override(override: Override, key: str, text: str) -> Finding | None:
    if override.type is OverrideType.FORCE_ADD:
        return None
    return Finding(key, f"'{text}' has to be added to a mapping", f"write ++{text.lstrip('+')}")


def _wrong_addition(key: str, text: str, value: object) -> Finding:
    prefix = text[: len(text) - len(text.lstrip("+"))]
    types = schema_types()
    if key in types:
        fix = f"write {text.lstrip('+')}"
        if is_dataclass(types[key]) and isinstance(value, dict):
            fix = f"set its keys one by one, like {key}.KEY=VALUE"
        return Finding(key, f"'{prefix}' adds keys, and this one exists", fix)
    unknown = unknown_key(key, types, given=value)
    if not unknown.problem.startswith("no such key"):
        return unknown
    return Finding(key, f"'{prefix}' would add a key that nothing reads (given {quoted(value)})", unknown.fix)


def _check_choice(override: Override, tree: ConfigTree, checked: CheckedOverrides) -> None:
    group, value = override.key_or_group, override.value()
    choices = tree.choices(group)
    names = value if isinstance(value, list) and group == RECIPES else [value]
    wrong = [name for name in names if name not in choices]
    for name in wrong:
        fix = _NEEDS.get(f"{group}={name}") or did_you_mean(as_typed(name), choices)
        if isinstance(name, dict) and group in GROUPS:
            fix = f"set its keys one by one, like {group}.KEY=VALUE"
        checked.findings.append(Finding(group, f"{quoted(name)} is not a choice of {group}", fix))
    if wrong:
        near = nearest(as_typed(names[0]), choices, cutoff=0.5)
        if group == RECIPES or not near:
            return
        override = OverridesParser.create().parse_override(f"{group}={near[0]}")
    unreadable = [problem for file in names_of([override]) if (problem := tree.unreadable(file)) is not None]
    checked.findings += unreadable
    if not unreadable:
        checked.choices.append(override)
