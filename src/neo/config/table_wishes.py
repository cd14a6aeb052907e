"""What is asked of single tables, checked before any data is read: their names and widths are known by then."""

from collections.abc import Mapping

from neo.config.schema import NeoConfig
from neo.errors import DataError, Finding
from neo.hardware.spec import HardwareSpec
from neo.models.spec import EMBEDDINGS_PATH, TABLE_LIST, declared_tables, tables_from_csv
from neo.ops.spec import Device
from neo.plan.sharding_plan import ColumnWiseSemantics
from neo.planner.kernels import decide_kernels, dim_multiple, requests_of
from neo.planner.layout import column_ranges, num_column_parts
from neo.planner.overrides import forced_types
from neo.planner.spec import ShardingMode
from neo.tables.spec import FeatureSpec, TableSpec


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
    names = config.data.feature_names(model.num_embeddings, model.pooling_factors)
    tables = declared_tables(model.to_spec(), [FeatureSpec(name, 1) for name in names])
    return {f"{EMBEDDINGS_PATH}.{table.name}": table for table in tables}


def wishes_for_tables(config: NeoConfig, device: Device, machine: HardwareSpec) -> list[Finding]:
    """Return what valid groups ask for and the tables cannot have on this machine.

    Kernels by name that cannot hold them; ``per_shard`` where each table has its type and none is split by columns.

    Args:
        config: The typed configuration.
        device: Where the kernels will run.
        machine: The machine, scaled to the ranks of the run.
    """
    sharding, optimizer = config.sharding.to_spec(), config.optim.to_spec().sparse
    tables = known_tables(config)
    if not tables or sharding.type is ShardingMode.FILE:
        return []
    forced, _ = forced_types(tables, sharding)
    requests = requests_of(
        tables,
        forced,
        ops_backend=config.ops.backend,
        device=device,
        optimizers=dict.fromkeys(tables, optimizer),
        semantics=sharding.semantics,
        world_size=machine.world_size,
        local_world_size=machine.local_world_size,
    )
    choices, findings = decide_kernels(requests, device=device)
    if sharding.column_wise_semantics is ColumnWiseSemantics.PER_SHARD and optimizer.is_rowwise:
        places = {
            key: num_column_parts(kind, machine.world_size, machine.local_world_size)
            for key, kind in forced.items()
            if kind is not None
        }
        multiples = {key: dim_multiple(kernel, device) for key, kernel in choices.kernels.items()}
        ranges = [len(column_ranges(tables[key], places[key], multiples[key])) for key in places]
        if len(places) == len(tables) and max(ranges) == 1:
            findings.append(_without_split(machine))
    return findings


def _without_split(machine: HardwareSpec) -> Finding:
    nodes = f"{machine.num_nodes} node{'' if machine.num_nodes == 1 else 's'}"
    ranks = f"{machine.world_size} rank{'' if machine.world_size == 1 else 's'} on {nodes}"
    problem = f"'per_shard' has no effect: the forced types split no table by columns over {ranks}"
    return Finding("sharding.column_wise_semantics", problem, "leave it out")
