"""Small tables, machines and plans for the tests of plan and planner."""

from neo.hardware.machine import AcceleratorSpec, HardwareSpec, MemoryTier
from neo.ops.spec import Device
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import ColumnWiseSemantics, ShardingType
from neo.planner.planner import PlanResult, make_plan
from neo.planner.spec import ShardingMode, ShardingSpec, TableSharding
from neo.tables.spec import TableSpec

GB = 10**9


def table(name: str, rows: int = 100, dim: int = 8, pooling_factor: float = 1.0) -> TableSpec:
    return TableSpec(name, rows, dim, (name,), pooling_factor=pooling_factor)


def tables(*specs: TableSpec, prefix: str = "model.embeddings.") -> dict[str, TableSpec]:
    return {f"{prefix}{spec.name}": spec for spec in specs}


def machine(
    hbm_bytes: int = 40 * GB, accelerators_per_node: int = 8, num_nodes: int = 1, ddr_bytes: int | None = None
) -> HardwareSpec:
    return HardwareSpec(
        name="Test",
        num_nodes=num_nodes,
        accelerators_per_node=accelerators_per_node,
        world_size=num_nodes * accelerators_per_node,
        accelerator=AcceleratorSpec("X1", hbm=MemoryTier(hbm_bytes)),
        ddr=MemoryTier(ddr_bytes),
    )


def plan_for(
    specs: dict[str, TableSpec],
    mode: str = "auto",
    *,
    world_size: int = 2,
    optimizer: str = "sgd",
    hardware: HardwareSpec | None = None,
    overrides: dict[str, str] | None = None,
    semantics: ColumnWiseSemantics | None = None,
    path: str | None = None,
    ops_backend: str = "reference",
    table_optimizers: dict[str, SparseOptimizerSpec] | None = None,
) -> PlanResult:
    chosen = tuple(TableSharding(name, ShardingType(kind)) for name, kind in (overrides or {}).items())
    return make_plan(
        specs,
        sharding=ShardingSpec(ShardingMode(mode), path, chosen, semantics),
        hardware=machine() if hardware is None else hardware,
        world_size=world_size,
        optimizer=SparseOptimizerSpec(name=optimizer),
        ops_backend=ops_backend,
        device=Device.CPU,
        table_optimizers=table_optimizers,
    )
