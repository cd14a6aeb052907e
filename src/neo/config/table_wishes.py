"""What is asked of single tables, checked before any data is read: their names and widths are known by then."""

from collections.abc import Mapping

from neo.config.schema import NeoConfig
from neo.errors import DataError, Finding
from neo.models.spec import EMBEDDINGS_PATH, TABLE_LIST, tables_from_csv
from neo.ops.spec import Device
from neo.plan.sharding_plan import ColumnWiseSemantics, ShardingType
from neo.planner.kernels import decide_kernels, dim_multiple, requests_of
from neo.planner.layout import column_ranges
from neo.planner.overrides import forced_types
from neo.planner.semantics import exact_refused
from neo.planner.spec import ShardingMode
from neo.tables.spec import TableSpec


def known_tables(config: NeoConfig) -> Mapping[str, TableSpec]:
    """Return the tables by plan key, with one row each: how many rows they have may depend on the data.

    Empty if the list of tables cannot be read; reading it again for the plan says why.
    """
    model = config.model
    if model.name == TABLE_LIST:
        try:
            return {table.name: table for table in tables_from_csv(model.path or "")}
        except DataError:
            return {}
    dim = model.to_spec().embedding_dim
    names = config.data.feature_names(model.num_embeddings, model.pooling_factors)
    return {f"{EMBEDDINGS_PATH}.{name}": TableSpec(name, 1, dim, (name,)) for name in names}


def wishes_for_tables(config: NeoConfig, device: Device, world_size: int) -> list[Finding]:
    """Return the wishes of valid groups that cannot be met: kernels for widths, exact results of split tables."""
    sharding, optimizer = config.sharding.to_spec(), config.optim.to_spec().sparse
    tables = known_tables(config)
    if not tables or sharding.type is ShardingMode.FILE:
        return []
    forced, _ = forced_types(tables, sharding)
    choices, findings = decide_kernels(
        requests_of(tables, forced, config.ops.backend), device=device, optimizer=optimizer
    )
    if sharding.column_wise_semantics is ColumnWiseSemantics.EXACT and optimizer.is_rowwise:
        split = [
            key
            for key, kernel in choices.kernels.items()
            if forced[key] is ShardingType.COLUMN_WISE
            and len(column_ranges(tables[key], world_size, dim_multiple(kernel, device))) > 1
        ]
        findings += [exact_refused(split, optimizer)] if split else []
    return findings
