"""What is asked of single tables by name: a type (``sharding.tables``), hyper-parameters (``optim.sparse.tables``)."""

from collections.abc import Collection, Iterable, Mapping

from neo.errors import Finding
from neo.optim.spec import OptimSpec, SparseOptimizerSpec
from neo.plan.sharding_plan import ShardingType
from neo.plan.table_names import matching_keys, nearest_table
from neo.planner.spec import ShardingSpec
from neo.tables.spec import TableSpec

TYPES, OPTIMIZERS = "sharding.tables", "optim.sparse.tables"
"""The configuration keys below which names of tables stand."""


def forced_types(
    tables: Mapping[str, TableSpec], sharding: ShardingSpec
) -> tuple[dict[str, ShardingType | None], list[Finding]]:
    """Return the forced type of every table (None: open), and a finding for each override that names no table."""
    forced: dict[str, ShardingType | None] = dict.fromkeys(tables, sharding.type.forced)
    named, findings = named_tables([override.name for override in sharding.tables], tables)
    keys = {name: key for key, name in named.items()}
    forced |= {keys[entry.name]: entry.sharding_type for entry in sharding.tables if entry.name in keys}
    return forced, findings


def table_optimizers(optim: OptimSpec, keys: Collection[str]) -> tuple[dict[str, SparseOptimizerSpec], list[Finding]]:
    """Return the optimizers of tables that have their own, by plan key, and a finding for each that names no table."""
    named, findings = named_tables([entry.name for entry in optim.tables], keys, OPTIMIZERS)
    return {key: optim.sparse_for(name) for key, name in named.items()}, findings


def named_tables(
    names: Iterable[str], keys: Collection[str], mapping: str = TYPES
) -> tuple[dict[str, str], list[Finding]]:
    """Return which override names each of ``keys``, and a finding for each that names none, or one named before.

    Args:
        names: Names of tables, or their keys in the plan.
        keys: The plan keys of all tables.
        mapping: The configuration key below which the names stand.
    """
    findings = []
    named: dict[str, str] = {}
    for name in names:
        place = f"{mapping}.{name}"
        matches = matching_keys(name, keys)
        if not matches:
            findings.append(Finding(place, f"'{name}' is not a table", nearest_table(name, keys)))
        elif len(matches) > 1:
            findings.append(Finding(place, f"'{name}' may be any of {', '.join(matches)}", "name one of them"))
        elif matches[0] in named:
            problem = f"is the table that {mapping}.{named[matches[0]]} names too"
            findings.append(Finding(place, problem, "keep one of them"))
        else:
            named[matches[0]] = name
    return named, findings
