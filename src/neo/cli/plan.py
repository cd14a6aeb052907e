"""``neo plan``: resolve and plan for the named machine; starts nothing and imports no torch."""

import dataclasses
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from neo.cli.planning import plan_tables, settled_semantics, tables_by_key
from neo.cli.run_folder import clear, write_json
from neo.cli.shared_schema import schema_of
from neo.config.cross_checks import machine_device
from neo.config.purpose import Purpose
from neo.config.resolve import resolve, write_resolved
from neo.config.run_config import RunConfig
from neo.errors import InfeasiblePlanError
from neo.models.spec import TABLE_LIST
from neo.plan.memory import capacity_per_rank, rank_bytes
from neo.plan.report import plan_report
from neo.plan.serialize import write_plan
from neo.planner.capacity import ShortOfMemoryError
from neo.planner.planner import PlanResult
from neo.tables.spec import TableSpec


def plan(config: DictConfig, run_dir: Path) -> int:
    """Plan one job in ``run_dir`` and return its exit code.

    Raises:
        ConfigError: The configuration is wrong.
        InfeasiblePlanError: No placement fits; ``estimate.json`` says so too.
        DataError: The data or the list of tables is not what the configuration says.
    """
    clear(run_dir)
    run = resolve(config, purpose=Purpose.PLAN)
    batch = run.data.planning_batch_size(run.hardware.world_size)
    write_resolved(run_dir / "resolved.yaml", config, settled_semantics(run) | {"data.global_batch_size": batch})
    tables = _tables(run, run_dir)
    began = time.perf_counter()
    try:
        planned = plan_tables(run, tables, device=machine_device(run.trainer.accelerator, run.hardware))
    except InfeasiblePlanError as error:
        wall_s = time.perf_counter() - began
        write_json(run_dir / "estimate.json", _infeasible(error, wall_s))
        raise
    wall_s = time.perf_counter() - began
    write_plan(run_dir / "plan.json", planned.plan, planned.fingerprint)
    write_json(run_dir / "estimate.json", _estimate(planned, wall_s))
    print(f"planned for: {run.hardware.label()}")
    if run.trainer.devices is not None:
        print(
            f"trainer.devices={run.trainer.devices} changes no plan of a machine: write "
            f"hardware.accelerators_per_node=… and hardware.num_nodes=… for another number of accelerators"
        )
    print(plan_report(planned.view), end="")
    print(f"run folder: {run_dir}")
    return 0


def _tables(run: RunConfig, run_dir: Path) -> Mapping[str, TableSpec]:
    if run.model.name == TABLE_LIST:
        return tables_by_key(run, ())
    with tempfile.TemporaryDirectory(prefix="neo-plan-") as folder:
        schema = schema_of(run, Path(folder) / "data_schema", run_dir)
    return tables_by_key(run, schema.features)


def _infeasible(error: InfeasiblePlanError, planner_wall_s: float) -> dict[str, Any]:
    shortage = dataclasses.asdict(error.shortage) if isinstance(error, ShortOfMemoryError) else None
    return {"feasible": False, "reason": str(error), "shortage": shortage, "planner_wall_s": planner_wall_s}


def _estimate(planned: PlanResult, planner_wall_s: float) -> dict[str, Any]:
    """Return what is known: memory. Times are not estimated yet, and so they are absent."""
    capacity = capacity_per_rank(planned.hardware)
    ranks = rank_bytes(planned.plan, planned.view.optimizers)
    memory = [
        {
            tier.value: {
                "weights": size.weights,
                "optimizer": size.optimizer,
                "cache": 0,
                "buffers": 0,
                "capacity": capacity[tier],
            }
            for tier, size in tiers.items()
        }
        for tiers in ranks
    ]
    totals = [sum(size.total for size in tiers.values()) for tiers in ranks]
    mean = sum(totals) / len(totals)
    return {
        "feasible": True,
        "reason": None,
        "memory": memory,
        "imbalance": {"bytes": max(totals) / mean if mean > 0 else 1.0},
        "planner_wall_s": planner_wall_s,
        "fallbacks": list(planned.fallbacks),
    }
