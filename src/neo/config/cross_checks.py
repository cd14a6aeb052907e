"""Mistakes that only two groups together make."""

from pathlib import Path

from neo.config.devices import execution_device, num_gpus
from neo.config.purpose import Purpose
from neo.config.schema import NeoConfig
from neo.errors import Finding
from neo.hardware.spec import HardwareSpec
from neo.models.spec import TABLE_LIST
from neo.ops.spec import AUTO, POOLED_LOOKUPS, Device, capability, refusal
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import ColumnWiseSemantics
from neo.strategy.spec import Accelerator
from neo.tables.spec import TableSpec


def machine_device(accelerator: Accelerator, hardware: HardwareSpec) -> Device:
    """Return what the named machine of a plan executes on."""
    if accelerator is not Accelerator.AUTO:
        return Device(accelerator.value)
    return Device.CUDA if hardware.shared_host_bytes is None else Device.CPU


def cross_findings(config: NeoConfig, purpose: Purpose) -> list[Finding]:
    """Return the mistakes between groups that are valid each by itself."""
    model = config.model
    findings = [*_files(config), *config.data.check_features(model.num_embeddings, model.pooling_factors, model.name)]
    if purpose is Purpose.TRAIN:
        findings += _trainable(config)
    optimizer, asked = config.optim.to_spec().sparse, config.sharding.column_wise_semantics
    if asked == ColumnWiseSemantics.PER_SHARD and not optimizer.is_rowwise:
        problem = f"'per_shard' has no effect on '{optimizer.name}': only row-wise optimizers depend on it"
        findings.append(Finding("sharding.column_wise_semantics", problem, "leave it out"))
    accelerator = Accelerator(config.trainer.accelerator)
    training = purpose is Purpose.TRAIN
    device = execution_device(accelerator) if training else machine_device(accelerator, config.hardware.to_spec())
    return findings + _backend(config, device)


def _files(config: NeoConfig) -> list[Finding]:
    asked = (
        ("sharding.path", config.sharding.path, "plan"),
        ("model.path", config.model.path, "list of tables"),
    )
    return [
        Finding(key, f"'{path}' is not a file", f"write the path of a {kind}")
        for key, path, kind in asked
        if path and not Path(path).is_file()
    ]


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
