"""Mistakes that only two groups together make."""

from collections.abc import Collection
from pathlib import Path

from neo.comms.spec import ExchangeMode, is_hierarchical
from neo.config.devices import execution_device, num_gpus, num_processes
from neo.config.purpose import Purpose
from neo.config.schema import NeoConfig
from neo.config.table_wishes import known_tables, wishes_for_tables
from neo.errors import ConfigError, Finding
from neo.hardware.spec import HardwareSpec
from neo.limits import MAX_RANKS
from neo.models.spec import TABLE_LIST
from neo.ops.spec import AUTO, POOLED_LOOKUPS, Device, capability, refusal
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.plan_reader import read_json
from neo.plan.sharding_plan import ColumnWiseSemantics, ShardingType
from neo.planner.overrides import OPTIMIZERS, forced_types, named_tables
from neo.planner.spec import ShardingMode
from neo.strategy.spec import Accelerator
from neo.tables.spec import TableSpec


def machine_device(accelerator: Accelerator, hardware: HardwareSpec) -> Device:
    """Return what the named machine of a plan executes on."""
    if accelerator is not Accelerator.AUTO:
        return Device(accelerator.value)
    return Device.CUDA if hardware.shared_host_bytes is None else Device.CPU


def cross_findings(
    config: NeoConfig, purpose: Purpose, *, spoiled: Collection[str] = (), num_started: int | None = None
) -> list[Finding]:
    """Return the mistakes between groups that are valid each by itself.

    Args:
        config: The typed configuration.
        purpose: What it is read for.
        spoiled: Groups with mistakes of their own: what needs them is not looked at.
        num_started: Ranks that something else has started; None if this command starts the workers.
    """

    def sound(*groups: str) -> bool:
        return not set(groups) & set(spoiled)

    findings = _files(config)
    if sound("model"):
        model = config.model
        findings += config.data.check_features(model.num_embeddings, model.pooling_factors, model.name)
    if purpose is Purpose.TRAIN and num_started is None:
        findings += _single_node(config)
    if purpose is Purpose.TRAIN and sound("trainer"):
        findings += _trainable(config)
    if config.callbacks.learning_rate_monitor and not config.logger.names:
        problem = "true has no effect: logger.names is [], so nothing is logged"
        findings.append(Finding("callbacks.learning_rate_monitor", problem, "leave it out, or use logger=csv"))
    if purpose is Purpose.TRAIN and sound("callbacks", "data", "trainer"):
        findings += _watched_validation(config)
    if purpose is Purpose.TRAIN:
        findings += [finding.under("checkpoint") for finding in config.checkpoint.check_paths()]
    if purpose is Purpose.TRAIN and sound("checkpoint", "data"):
        findings += _monitor(config)
    if sound("optim", "sharding"):
        findings += _semantics_without_effect(config)
    if not sound("ops", "optim", "trainer", "model", "hardware"):
        return findings + (_table_names(config) if sound("model") else [])
    accelerator = Accelerator(config.trainer.accelerator)
    training = purpose is Purpose.TRAIN
    hardware = config.hardware.to_spec()
    device = execution_device(accelerator) if training else machine_device(accelerator, hardware)
    refused = _backend(config, device)
    findings += [*refused, *_table_names(config)]
    started = num_processes(config.trainer.to_spec().devices, accelerator) if num_started is None else num_started
    machine = hardware.scaled_to(started) if training else hardware
    if training and sound("comms"):
        findings += _exchange_without_effect(config, machine)
    if sound("comms", "sharding") and machine.world_size > 1:
        findings += _comms_of_copies(config, machine)
    if sound("sharding") and not refused:
        findings += wishes_for_tables(config, device, machine)
    return findings


def _watched_validation(config: NeoConfig) -> list[Finding]:
    """Return a finding for each key that waits for validations that will never come."""
    why = None
    if config.trainer.limit_val_batches == 0:
        why, fix = "trainer.limit_val_batches=0 takes none", "let some batches be validated, or leave it out"
    elif not config.data.to_spec().has_validation:
        why, fix = "there is no validation data", "name some with data.val_path, or leave it out"
    if why is None:
        return []
    keys = config.callbacks.to_spec().watches_validation
    return [Finding(f"callbacks.{key}", f"reads validations, and {why}", fix) for key in keys]


def _semantics_without_effect(config: NeoConfig) -> list[Finding]:
    optimizer = config.optim.to_spec().sparse
    if config.sharding.column_wise_semantics != ColumnWiseSemantics.PER_SHARD or optimizer.is_rowwise:
        return []
    problem = f"'per_shard' has no effect on '{optimizer.name}': only row-wise optimizers depend on it"
    return [Finding("sharding.column_wise_semantics", problem, "leave it out")]


def _exchange_without_effect(config: NeoConfig, machine: HardwareSpec) -> list[Finding]:
    per_node = machine.local_world_size
    if config.comms.exchange != ExchangeMode.HIERARCHICAL or 1 < per_node < machine.world_size:
        return []
    shape = "one node" if per_node >= machine.world_size else "one rank on each node"
    problem = f"'hierarchical' has no effect with {shape}: there are no relays between nodes"
    return [Finding("comms.exchange", problem, "leave it at auto, or set hardware.accelerators_per_node")]


def _comms_of_copies(config: NeoConfig, machine: HardwareSpec) -> list[Finding]:
    """Return a finding for each codec, and a way, that nothing takes: every table is forced to be a copy."""
    sharding, comms, tables = config.sharding.to_spec(), config.comms.to_spec(), known_tables(config)
    forced = forced_types(tables, sharding)[0].values()
    if not tables or set(forced) != {ShardingType.DATA_PARALLEL}:
        return []
    relays = is_hierarchical(comms.exchange, machine.world_size, machine.local_world_size)
    asked = relays and comms.exchange is ExchangeMode.HIERARCHICAL
    keys = [*comms.coded_keys(), *(["exchange"] if asked else [])]
    problem = "has no effect: every table is data_parallel, and those are added up in fp32"
    return [Finding(f"comms.{key}", f"'{getattr(comms, key)}' {problem}", "leave it out") for key in keys]


def _table_names(config: NeoConfig) -> list[Finding]:
    keys = known_tables(config)
    if not keys:
        return []
    placed = () if config.sharding.type == ShardingMode.FILE else config.sharding.tables
    findings = named_tables([str(name) for name in placed], keys)[1]
    return findings + named_tables([str(name) for name in config.optim.sparse.tables], keys, OPTIMIZERS)[1]


def _files(config: NeoConfig) -> list[Finding]:
    asked = (
        ("sharding.path", config.sharding.path, "plan"),
        ("model.path", config.model.path, "list of tables"),
    )
    missing = [
        Finding(key, f"'{path}' is not a file", f"write the path of a {kind}")
        for key, path, kind in asked
        if path and not Path(path).is_file()
    ]
    plan = config.sharding.path
    if config.sharding.type != ShardingMode.FILE or not plan or not Path(plan).is_file():
        return missing
    try:
        read_json(Path(plan))
    except ConfigError as error:
        return [*missing, *error.findings]
    return missing


def _monitor(config: NeoConfig) -> list[Finding]:
    if config.checkpoint.monitor is None or config.data.to_spec().has_validation:
        return []
    problem = f"'{config.checkpoint.monitor}' has no effect: there is no validation data"
    return [Finding("checkpoint.monitor", problem, "set data.val_path, or leave it out")]


def _single_node(config: NeoConfig) -> list[Finding]:
    nodes = config.trainer.num_nodes
    if not 1 < nodes <= MAX_RANKS:
        return []
    fix = "start this command on every node with torchrun or srun"
    return [Finding("trainer.num_nodes", f"{nodes} nodes, but workers are started on this host only", fix)]


def _trainable(config: NeoConfig) -> list[Finding]:
    findings = []
    if config.model.name == TABLE_LIST:
        findings.append(Finding("model.name", "'table_list' is planned, not trained", "use plan.py, or model=dlrm"))
    trainer = config.trainer
    wanted = trainer.devices if isinstance(trainer.devices, int) else 1
    if trainer.accelerator == Accelerator.CUDA and num_gpus() < wanted:
        problem = f"'cuda' needs {wanted} CUDA device{'' if wanted == 1 else 's'}, and this host shows {num_gpus()}"
        findings.append(Finding("trainer.accelerator", problem, "use trainer.accelerator=cpu, or fewer devices"))
    elif trainer.accelerator == Accelerator.AUTO and 0 < num_gpus() < wanted:
        problem = f"{wanted} is above the {num_gpus()} CUDA devices of this host"
        findings.append(Finding("trainer.devices", problem, "use fewer, or trainer.accelerator=cpu"))
    return findings


def _backend(config: NeoConfig, device: Device) -> list[Finding]:
    optimizer = config.optim.to_spec().sparse
    if config.ops.backend != AUTO:
        reason = _refused(config.ops.backend, device, optimizer)
        return [Finding("ops.backend", reason, "use ops=auto or ops=reference")] if reason else []
    reasons = [_refused(name, device, optimizer) for name in POOLED_LOOKUPS]
    if all(reasons):
        return [Finding("optim.sparse", "no ops backend can train it: " + "; ".join(filter(None, reasons)))]
    return []


def _refused(backend: str, device: Device, optimizer: SparseOptimizerSpec) -> str | None:
    """Return why a backend cannot train any table with this optimizer, or None."""
    able = capability(backend, device)
    width = able.dim_multiple if able is not None else 1
    return refusal(backend, device, TableSpec("any", 1, width, ("any",)), width, optimizer)
