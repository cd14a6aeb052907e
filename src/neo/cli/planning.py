"""The part that ``train`` and ``plan`` share: tables by key, then a plan that is whole and fits."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from neo.config.run_config import RunConfig
from neo.errors import ConfigError, Finding
from neo.models.spec import EMBEDDINGS_PATH, TABLE_LIST, tables_of
from neo.ops.spec import Device
from neo.plan.check import check_plan
from neo.plan.strictness import strict_findings
from neo.planner.exchange import exchange_note, idle_comms
from neo.planner.overrides import table_optimizers
from neo.planner.planner import PlanResult, make_plan
from neo.planner.spec import ShardingMode
from neo.tables.spec import FeatureSpec, TableSpec


def keyed(tables: Sequence[TableSpec], prefix: str) -> dict[str, TableSpec]:
    """Return the tables by plan key: ``prefix.name``, or the bare name without a prefix.

    Raises:
        ConfigError: A name occurs twice.
    """
    names = [table.name for table in tables]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ConfigError([Finding("model", f"table '{name}' occurs twice", "rename one") for name in twice])
    return {f"{prefix}.{table.name}" if prefix else table.name: table for table in tables}


def tables_by_key(config: RunConfig, features: Sequence[FeatureSpec]) -> dict[str, TableSpec]:
    """Return the tables of a run by plan key; a list of tables has no model around it, and needs no features.

    Raises:
        ConfigError: A name occurs twice.
        DataError: The list of tables cannot be read.
    """
    prefix = "" if config.model.name == TABLE_LIST else EMBEDDINGS_PATH
    return keyed(tables_of(config.model, tuple(features)), prefix)


def settled_semantics(config: RunConfig) -> dict[str, object]:
    """Return what a null of ``sharding.column_wise_semantics`` has become; a plan that is read may say otherwise."""
    if config.sharding.type is ShardingMode.FILE:
        return {}
    return {"sharding.column_wise_semantics": config.sharding.semantics.value}


def settled_training(config: RunConfig, *, device: Device, local_world_size: int) -> dict[str, object]:
    """Return what every ``auto`` of a training run has become, so that ranks and later readers see the same.

    Args:
        config: The configuration.
        device: What it runs on.
        local_world_size: Processes on this host.
    """
    return settled_semantics(config) | {
        "trainer.accelerator": device.value,
        "trainer.devices": local_world_size,
        "data.global_batch_size": config.data.training_batch_size,
    }


def plan_tables(config: RunConfig, tables: Mapping[str, TableSpec], *, device: Device) -> PlanResult:
    """Make or read the plan for the world of ``config.hardware`` and check it.

    Args:
        config: The configuration, its hardware scaled to the world.
        tables: The tables by plan key.
        device: What the kernels run on.

    Raises:
        ConfigError: A table does not suit the backend that was asked for, an optimizer is for no table, the given
            plan does not fit, or ``strict`` forbids what was replaced.
        InfeasiblePlanError: No placement fits the memory of the machine.
    """
    hardware = config.hardware
    own, unknown = table_optimizers(config.optim, tables)
    if unknown:
        raise ConfigError(unknown)
    result = make_plan(
        tables,
        sharding=config.sharding,
        hardware=hardware,
        world_size=hardware.world_size,
        optimizer=config.optim.sparse,
        ops_backend=config.ops.backend,
        device=device,
        table_optimizers=own,
    )
    findings = check_plan(result.plan, tables, hardware.world_size, hardware.local_world_size)
    if findings:
        raise ConfigError([finding.under("plan") for finding in findings])
    fallbacks = result.fallbacks + idle_comms(result.plan, config.comms)
    if config.strict and (refused := strict_findings(fallbacks)):
        raise ConfigError(refused)
    view = replace(result.view, fallbacks=fallbacks, exchange=exchange_note(result.plan, config.comms))
    return replace(result, fallbacks=fallbacks, view=view)
