"""Which sharding type is forced on which table: ``sharding.type`` and ``sharding.tables.NAME.type``."""

from collections.abc import Mapping

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
    findings = []
    named: dict[str, str] = {}
    for override in sharding.tables:
        place = f"sharding.tables.{override.name}"
        matches = matching_keys(override.name, tables)
        if not matches:
            findings.append(Finding(place, f"'{override.name}' is not a table", nearest_table(override.name, tables)))
        elif len(matches) > 1:
            findings.append(Finding(place, f"'{override.name}' may be any of {', '.join(matches)}", "name one of them"))
        elif matches[0] in named:
            problem = f"is the table that sharding.tables.{named[matches[0]]} names too"
            findings.append(Finding(place, problem, "keep one of them"))
        else:
            named[matches[0]] = override.name
            forced[matches[0]] = override.sharding_type
    return forced, findings
