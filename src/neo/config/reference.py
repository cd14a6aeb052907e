"""The page of every configuration key, made from the schema: ``python -m neo.config.reference`` writes it.

Types and defaults are the dataclasses'; allowed values and limits are asked of the checks themselves; the meaning is
the line about the field under ``Attributes`` in the docstring of the configuration class, or of the frozen class that
it becomes. Torch-free.
"""

import dataclasses
import inspect
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import neo.conf
from neo.as_typed import as_typed
from neo.config.resolve import settled_defaults
from neo.config.schema import NeoConfig, in_words

PAGE = Path("docs") / "configuration.md"
COMMAND = "python -m neo.config.reference"
_UNITS = ("", "_bytes", "_bytes_per_s", "_per_s", "_s")  # that a frozen class has in the names of its fields
_NONSENSE = "no-such-value"
_HUGE = 10**30
_CHOICES = r"Choices: (.*)$"
_LIMITS = r"(?:write |is outside )(\S+ to \S+|\S+ or more|[\[(][^\])]*[\])])"
_HEAD = f"""# Configuration

Every key, by group. Any key can be overridden on the command line: `python train.py trainer.max_steps=100`; a group's
file is chosen by its name: `hardware=dgx_h100`. `python train.py --cfg job` shows what a command would run with.

"null" as a default means: not limited, not known, taken from the data, or the value in brackets. Quantities are texts
with a unit: `40GiB`, `1.5TB/s`, `200Gbps`, `5us`.

This page is made from the schema. After a change of a key: `{COMMAND}`.
"""
_TABLES = """## Single tables

Keys of single tables are added with `++`: `++sharding.tables.NAME.type=row_wise` places one table,
`++optim.sparse.tables.NAME.lr=0.1` gives it hyper-parameters of its own (the keys of `optim.sparse`). NAME is the
table's name.
"""


@dataclasses.dataclass(frozen=True)
class KeyEntry:
    """One key of the page.

    Attributes:
        key: Dotted key.
        kind: Its type in words.
        default: Its default as it is typed; what null stands for in brackets.
        allowed: Choices or limits; empty if the type says it all.
        meaning: One sentence; empty if no docstring has one.
    """

    key: str
    kind: str
    default: str
    allowed: str
    meaning: str


def key_entries() -> list[KeyEntry]:
    """Return every key of the schema, in its order; the keys of groups follow each other."""
    entries = list(_entries_of(NeoConfig(), ""))
    return sorted(entries, key=lambda entry: "." in entry.key)  # stable: what is at the root comes first


def missing_meanings() -> list[str]:
    """Return the keys that no docstring explains."""
    return [entry.key for entry in key_entries() if not entry.meaning]


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    groups: dict[str, list[KeyEntry]] = {}
    for entry in key_entries():
        groups.setdefault(entry.key.partition(".")[0] if "." in entry.key else "", []).append(entry)
    for group, entries in groups.items():
        parts.append(_section(group, entries))
    parts.append(_TABLES)
    return "\n".join(parts)


def _section(group: str, entries: list[KeyEntry]) -> str:
    choices = group_choices(group) if group else []
    lines = [f"## {group}" if group else "## The run as a whole", ""]
    if choices:
        lines += [f"Choices: {', '.join(f'`{group}={name}`' for name in choices)}.", ""]
    lines += ["| key | type | default | allowed | meaning |", "|---|---|---|---|---|"]
    for entry in entries:
        cells = (f"`{entry.key}`", entry.kind, f"`{entry.default}`", entry.allowed, entry.meaning)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join([*lines, ""])


def group_choices(group: str) -> list[str]:
    """Return the names of a group's files."""
    (folder,) = neo.conf.__path__
    return sorted(path.stem for path in (Path(folder) / group).glob("*.yaml"))


def _entries_of(config: Any, prefix: str) -> Iterator[KeyEntry]:
    hints = typing.get_type_hints(type(config))
    meanings = _meanings(type(config))
    settled = _settled(config)
    for entry in dataclasses.fields(config):
        key, value = f"{prefix}{entry.name}", getattr(config, entry.name)
        if dataclasses.is_dataclass(value):
            yield from _entries_of(value, f"{key}.")
            continue
        default = _typed(value)
        if value is None and entry.name in settled:
            default = f"null ({_typed(settled[entry.name])})"
        meaning = next((meanings[entry.name + unit] for unit in _UNITS if entry.name + unit in meanings), "")
        yield KeyEntry(key, in_words(hints[entry.name]), default, _allowed(config, entry.name, hints), meaning)


def _settled(config: Any) -> Mapping[str, Any]:
    return settled_defaults(config) if hasattr(config, "to_spec") and not config.validate() else {}


def _typed(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{','.join(as_typed(item) for item in value)}]"
    return "{}" if value == {} else "''" if value == "" else as_typed(value)


def _meanings(config: type) -> dict[str, str]:
    """Return a sentence for each field: the configuration class's own, or that of the class it becomes."""
    found: dict[str, str] = {}
    for described in (*_becomes(config), config):
        found |= attributes_of(described)
    return found


def _becomes(config: type) -> list[type]:
    """Return the frozen classes that the configuration class has methods for or a namesake of."""
    namesake = getattr(sys.modules[config.__module__], config.__name__.replace("Config", "Spec"), None)
    classes = [namesake] if isinstance(namesake, type) and namesake is not config else []
    for name, method in inspect.getmembers(config, inspect.isfunction):
        result = typing.get_type_hints(method).get("return")
        if name.startswith("to_") and isinstance(result, type) and dataclasses.is_dataclass(result):
            classes.append(result)
    return classes


def attributes_of(described: type) -> dict[str, str]:
    """Return what the ``Attributes`` section of a docstring says about each name, as Markdown on one line."""
    _, _, section = inspect.cleandoc(described.__doc__ or "").partition("Attributes:\n")
    section = re.split(r"\n(?=\S)", section)[0]
    found = {}
    for block in re.split(r"\n(?=    \S)", "\n" + section):
        name, colon, text = block.strip().partition(":")
        if colon and name.isidentifier():
            found[name] = re.sub(r"\bNone\b", "null", " ".join(text.split()).replace("``", "`"))
    return found


def _allowed(config: Any, name: str, hints: Mapping[str, Any]) -> str:
    """Ask the check itself: give it a value that cannot be right and read the choices or limits it names."""
    kinds = set(typing.get_args(hints[name])) or {hints[name]}
    if kinds & {int, float}:
        found = (_said(config, name, value, _LIMITS) for value in (-_HUGE, _HUGE))
        return next((limits for limits in found if limits), "")
    return _said(config, name, _NONSENSE, _CHOICES) if str in kinds else ""


def _said(config: Any, name: str, value: object, pattern: str) -> str:
    try:
        findings = dataclasses.replace(config, **{name: value}).validate()
    except (AttributeError, TypeError, ValueError, OverflowError):
        return ""
    for finding in findings:
        answer = re.search(pattern, str(finding))
        if finding.key == name and answer is not None:
            return answer.group(1)
    return ""


def main() -> None:
    """Write the page into the checkout that this is run in."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
