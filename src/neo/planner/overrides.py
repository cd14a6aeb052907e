"""Which sharding type is forced on which table: ``sharding.type`` and ``sharding.tables.NAME.type``."""

from collections.abc import Collection, Iterable, Mapping

from neo.errors import Finding
from neo.plan.sharding_plan import ShardingType
from neo.plan.table_names import matching_keys, nearest_table
from neo.planner.spec import ShardingSpec
from neo.tables.spec import TableSpec


def forced_types(
    tables: Mapping[str, TableSpec], sharding: ShardingSpec
) -> tuple[dict[str, ShardingType | None], list[Finding]]:
    """Return the forced type of every table (None: open), and a finding for each override that names no table."""
    forced: dict[str, ShardingType | None] = dict.fromkeys(tables, sharding.type.forced)
    named, findings = named_tables([override.name for override in sharding.tables], tables)
    keys = {name: key for key, name in named.items()}
    forced |= {keys[entry.name]: entry.sharding_type for entry in sharding.tables if entry.name in keys}
    return forced, findings


def named_tables(names: Iterable[str], keys: Collection[str]) -> tuple[dict[str, str], list[Finding]]:
    """Return which override names each of ``keys``, and a finding for each that names none, or one named before."""
    findings = []
    named: dict[str, str] = {}
    for name in names:
        place = f"sharding.tables.{name}"
        matches = matching_keys(name, keys)
        if not matches:
            findings.append(Finding(place, f"'{name}' is not a table", nearest_table(name, keys)))
        elif len(matches) > 1:
            findings.append(Finding(place, f"'{name}' may be any of {', '.join(matches)}", "name one of them"))
        elif matches[0] in named:
            problem = f"is the table that sharding.tables.{named[matches[0]]} names too"
            findings.append(Finding(place, problem, "keep one of them"))
        else:
            named[matches[0]] = name
    return named, findings
