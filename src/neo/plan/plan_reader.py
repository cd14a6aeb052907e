"""Reading ``plan.json`` (the format is in ``neo.plan.serialize``): whatever is wrong with it becomes a finding."""

import json
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from neo.errors import ConfigError, Finding, did_you_mean, unknown_name
from neo.plan.fingerprint import plan_fingerprint
from neo.plan.shard_reader import ShardReader, whole_number
from neo.plan.sharding_plan import ColumnWiseSemantics, ShardingPlan, ShardingType, TablePlan, Tier
from neo.plan.table_names import matching_keys
from neo.tables.spec import TableSpec

_VERSION = 1
_MOST_RANKS = 2**20
_PLAN_KEYS = ("version", "world_size", "local_world_size", "column_wise_semantics", "fingerprint", "tables")
_TABLE_KEYS = ("sharding_type", "kernel", "tier", "cache_bytes", "shards", "ranks")


class _Repeated(dict[str, Any]):
    """A JSON object in which ``repeated`` keys stand more than once."""

    repeated: tuple[str, ...] = ()


def read_plan(path: Path, tables: Mapping[str, TableSpec] | None = None) -> ShardingPlan:
    """Read a plan from a file.

    Args:
        path: The file.
        tables: The tables of the model by plan key, if known: bare names are then completed, ``ranks: "all"`` needs no
            ranges, and a fingerprint in the file is checked.

    Raises:
        ConfigError: The file cannot be read or is no plan; every finding names the file and the place in it.
    """
    content = read_json(path)
    try:
        return plan_from_dict(content, tables)
    except ConfigError as error:
        raise ConfigError([Finding(f"{path}: {f.key}", f.problem, f.fix) for f in error.findings]) from error


def read_json(path: Path) -> object:
    """Read the text of a plan without looking at what it says. Raises ConfigError as ``read_plan`` does."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_object)
    except OSError as error:
        problem = f"cannot read '{path}': {error.strerror or error}"
        raise ConfigError([Finding("sharding.path", problem, "name a plan.json")]) from error
    except json.JSONDecodeError as error:
        problem = f"'{path}' is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        raise ConfigError([Finding("sharding.path", problem)]) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError([Finding("sharding.path", f"'{path}' is not JSON text in UTF-8: {error}")]) from error


def plan_from_dict(content: object, tables: Mapping[str, TableSpec] | None = None) -> ShardingPlan:
    """Turn what ``plan.json`` holds into a plan; ``tables`` as in ``read_plan``.

    Only the form is checked here; whether the plan is whole and fits a world is ``neo.plan.check``.

    Raises:
        ConfigError: Something is malformed; every finding has its place, like ``tables.user_id.shards[2].rows``.
    """
    findings: list[Finding] = []
    plan = _read_content(content, tables, findings)
    if findings or plan is None:
        raise ConfigError(findings)
    if tables is not None and isinstance(content, Mapping) and content.get("fingerprint") is not None:
        actual = plan_fingerprint(plan, tables)
        if content["fingerprint"] != actual:
            problem = f"'{content['fingerprint']}' is not the fingerprint of this plan and these tables, '{actual}'"
            fix = "after editing the plan by hand delete the line; else the tables differ from those planned for"
            raise ConfigError([Finding("fingerprint", problem, fix)])
    return plan


def _object(pairs: list[tuple[str, Any]]) -> _Repeated:
    content = _Repeated(pairs)
    content.repeated = tuple(sorted(key for key, count in Counter(key for key, _ in pairs).items() if count > 1))
    return content


def _read_content(
    content: object, tables: Mapping[str, TableSpec] | None, findings: list[Finding]
) -> ShardingPlan | None:
    if not isinstance(content, Mapping):
        findings.append(Finding("plan", f"must be a JSON object, not {type(content).__name__}"))
        return None
    findings += _bad_keys(content, "", _PLAN_KEYS, "plan")
    version = content.get("version", None)
    if version != _VERSION or isinstance(version, bool):
        findings.append(Finding("version", f"{version!r} is not a version that this neo reads", f"it reads {_VERSION}"))
    world_size = whole_number(content, "world_size", findings, lowest=1, highest=_MOST_RANKS)
    local_world_size = whole_number(content, "local_world_size", findings, lowest=1, highest=_MOST_RANKS)
    semantics = None
    if content.get("column_wise_semantics") is not None:
        semantics = _choice(content, "column_wise_semantics", "column-wise semantics", ColumnWiseSemantics, findings)
    entries = content.get("tables")
    if not isinstance(entries, Mapping):
        problem = "is missing" if entries is None else f"must be an object by table, not {type(entries).__name__}"
        findings.append(Finding("tables", problem))
        return None
    findings += _repeated(entries, "tables")
    placed: dict[str, TablePlan] = {}
    for written, entry in entries.items():
        key = _full_key(written, tables, placed, findings)
        table = None if tables is None else tables.get(key)
        world = None if world_size is None or local_world_size is None else (world_size, local_world_size)
        table_plan = _read_table(entry, f"tables.{written}", table, world, findings)
        if table_plan is not None:
            placed[key] = table_plan
    if world_size is None or local_world_size is None:
        return None
    return ShardingPlan(world_size, local_world_size, placed, semantics)


def _full_key(
    written: str, tables: Mapping[str, TableSpec] | None, placed: Mapping[str, Any], findings: list[Finding]
) -> str:
    """Complete a bare name; a name that no table has is kept, for ``check_plan`` to refuse."""
    matches = [] if tables is None else matching_keys(written, tables)
    if len(matches) > 1:
        findings.append(Finding(f"tables.{written}", f"may be any of {', '.join(matches)}", "write the whole key"))
    key = matches[0] if len(matches) == 1 else written
    if key in placed:
        findings.append(Finding(f"tables.{written}", f"the table '{key}' is in the plan more than once"))
    return key


def _read_table(
    entry: object, place: str, table: TableSpec | None, world: tuple[int, int] | None, findings: list[Finding]
) -> TablePlan | None:
    if not isinstance(entry, Mapping):
        findings.append(Finding(place, f"must be an object, not {type(entry).__name__}"))
        return None
    found: list[Finding] = _bad_keys(entry, "", _TABLE_KEYS, "table in a plan")
    sharding_type = _choice(entry, "sharding_type", "sharding type", ShardingType, found)
    tier = _choice(entry, "tier", "memory tier", Tier, found, default=Tier.HBM)
    kernel = entry.get("kernel", "auto")
    if not isinstance(kernel, str):
        found.append(Finding("kernel", f"{kernel!r} is not a name", "write auto or an ops backend"))
    cache_bytes = whole_number(entry, "cache_bytes", found, lowest=0, default=0)
    shards = None
    if sharding_type is not None and world is not None:
        reader = ShardReader(sharding_type, table, world_size=world[0], local_world_size=world[1], findings=found)
        shards = reader.read(entry)
    findings += [finding.under(place) for finding in found]
    if found or sharding_type is None or tier is None or shards is None or cache_bytes is None:
        return None
    return TablePlan(sharding_type, shards, str(kernel), tier, cache_bytes)


def _choice(
    entry: Mapping[str, Any],
    key: str,
    kind: str,
    choices: type[StrEnum],
    findings: list[Finding],
    default: Any = None,
) -> Any:
    value = entry.get(key, default)
    if value is None:
        findings.append(Finding(key, "is missing"))
        return None
    try:
        return choices(value)
    except ValueError:
        findings.append(unknown_name(key, str(value), kind, list(choices)))
        return None


def _bad_keys(content: Mapping[str, Any], place: str, known: tuple[str, ...], what: str) -> list[Finding]:
    findings = [
        Finding(str(key), f"'{key}' is not a key of a {what}", did_you_mean(str(key), known))
        for key in content
        if key not in known
    ]
    return findings + _repeated(content, place)


def _repeated(content: Mapping[str, Any], place: str) -> list[Finding]:
    keys = content.repeated if isinstance(content, _Repeated) else ()
    return [Finding(f"{place}.{key}" if place else key, "stands in the file more than once") for key in keys]
