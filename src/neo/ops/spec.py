"""What each ops backend can do: one capability matrix, read by the planner, the validator and the executor.

Torch-free. A combination that is not listed is refused when the configuration is read.
"""

from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from importlib.util import find_spec

from neo.errors import Finding, unknown_name
from neo.optim.spec import SparseOptimizerSpec, WeightDecayMode
from neo.registry import Registry
from neo.tables.spec import TableSpec, WeightsDtype

# Source: docs/dependencies.md; an fbgemm wheel is built against one torch release (facts: tried with this pair).
TORCH_FBGEMM_PAIRS = {"2.13": "1.8"}
AUTO = "auto"


class Device(StrEnum):
    """Kind of device that a kernel runs on."""

    CPU = "cpu"
    CUDA = "cuda"


@dataclass(frozen=True)
class Capability:
    """What one backend's pooled lookup with fused update does on one device.

    Attributes:
        optimizers: Sparse optimizers whose exact update it fuses into the backward.
        weights_dtypes: Types of stored weights.
        dim_multiple: Every shard's width must be a multiple of this.
        weight_decays: Kinds of weight decay that it does.
        rounds_stochastically: Whether it rounds 16-bit weights at random, reproducibly from the seed; without it, it
            rounds to the nearest.
        shares_row_state: Whether it can give out merged gradients and take the squares of whole rows back
            (``PooledLookup.merge`` and ``apply``), so that a row-wise optimizer is exact on a table split by columns.
            Such a table takes this unfused update, which costs more than the fused one.
        except_for: Pairs of an optimizer and a weights type that it does not do, although it does each with others.
    """

    backend: str
    device: Device
    optimizers: frozenset[str]
    weights_dtypes: frozenset[WeightsDtype]
    dim_multiple: int = 1
    weight_decays: frozenset[WeightDecayMode] = frozenset()
    rounds_stochastically: bool = False
    shares_row_state: bool = False
    except_for: frozenset[tuple[str, WeightsDtype]] = frozenset()


POOLED_LOOKUPS: Registry[type] = Registry("ops backend")
_CAPABILITIES: dict[tuple[str, Device], Capability] = {}


def register_backend(name: str, target: str, capabilities: tuple[Capability, ...]) -> None:
    """Add an ops backend: the place of its ``PooledLookup`` class and what it can do on each device."""
    POOLED_LOOKUPS.register(name, target)
    for capability in capabilities:
        _CAPABILITIES[name, capability.device] = capability


def capability(backend: str, device: Device) -> Capability | None:
    """Return what ``backend`` can do on ``device``, or None if it does not run there."""
    return _CAPABILITIES.get((backend, device))


_ALL_OPTIMIZERS = frozenset({"sgd", "adagrad", "rowwise_adagrad", "adam", "partial_rowwise_adam"})
register_backend(
    "reference",
    "neo.ops.reference.pooled_lookup:ReferencePooledLookup",
    tuple(
        Capability(
            "reference",
            device,
            _ALL_OPTIMIZERS,
            frozenset(WeightsDtype),
            weight_decays=frozenset(WeightDecayMode),
            rounds_stochastically=True,
            shares_row_state=True,
        )
        for device in (Device.CPU, Device.CUDA)
    ),
)
_FBGEMM_OPTIMIZERS = frozenset({"sgd", "adagrad", "rowwise_adagrad"})
register_backend(
    "fbgemm",
    "neo.ops.fbgemm.pooled_lookup:FbgemmPooledLookup",
    (
        # No Adam: fbgemm-gpu-cpu 1.8.0 has none, and on CUDA its step count also rises in forwards without a
        # backward, which shifts the bias correction. Weight decay and stochastic rounding are silently ignored on the
        # CPU; on CUDA rounding draws from a generator, so it would change with the plan. Widths are multiples of 4.
        # Float16 on the CPU rounds to the nearest, but all except row-wise AdaGrad round in between too (AdaGrad was
        # off by 92 spacings of a small weight in the conformance suite); bfloat16 cannot be trained there.
        Capability(
            "fbgemm",
            Device.CPU,
            _FBGEMM_OPTIMIZERS,
            frozenset({WeightsDtype.FP32, WeightsDtype.FP16}),
            dim_multiple=4,
            except_for=frozenset({("sgd", WeightsDtype.FP16), ("adagrad", WeightsDtype.FP16)}),
        ),
        Capability("fbgemm", Device.CUDA, _FBGEMM_OPTIMIZERS, frozenset({WeightsDtype.FP32}), dim_multiple=4),
    ),
)


def refusal(
    backend: str,
    device: Device,
    table: TableSpec,
    width: int,
    optimizer: SparseOptimizerSpec,
    *,
    shares_row_state: bool = False,
) -> str | None:
    """Return why ``backend`` cannot hold a shard of ``table`` that is ``width`` columns wide, or None if it can.

    Args:
        backend: Name of the backend.
        device: Where it would run.
        table: The whole table.
        width: Columns of the shard.
        optimizer: The table's optimizer.
        shares_row_state: Whether the shard is one of several column shards whose row-wise optimizer state must be
            that of the whole row.
    """
    able = capability(backend, device)
    if able is None:
        return f"{backend} does not run on {device}"
    if optimizer.name not in able.optimizers:
        return f"{backend} has no {optimizer.name} on {device} (it has {', '.join(sorted(able.optimizers))})"
    if optimizer.weights_dtype not in able.weights_dtypes:
        kept = ", ".join(sorted(able.weights_dtypes))
        return f"{backend} does not train {optimizer.weights_dtype} weights on {device} (it has {kept})"
    if (optimizer.name, optimizer.weights_dtype) in able.except_for:
        return f"{backend} has no exact {optimizer.name} of {optimizer.weights_dtype} weights on {device}"
    if optimizer.weight_decay and optimizer.weight_decay_mode not in able.weight_decays:
        return f"{backend} has no {optimizer.weight_decay_mode} weight decay on {device}"
    if optimizer.rounds_stochastically and not able.rounds_stochastically:
        return f"{backend} does not round {optimizer.weights_dtype} weights stochastically on {device}"
    if shares_row_state and not able.shares_row_state:
        return f"{backend} does not share a row's {optimizer.name} state over column shards"
    if width % able.dim_multiple:
        return f"{backend} needs widths that are multiples of {able.dim_multiple}; '{table.name}' has {width}"
    return None


@dataclass(frozen=True)
class FbgemmStatus:
    """Whether the FBGEMM package can be expected to work, without importing it.

    Attributes:
        usable: Installed, and paired with the installed torch.
        reason: If not usable: what is wrong and what to install, naming both versions.
    """

    usable: bool
    reason: str = ""


def fbgemm_status() -> FbgemmStatus:
    """Look at the installed distributions; imports neither torch nor fbgemm_gpu."""
    torch_version = _version("torch")
    wanted = TORCH_FBGEMM_PAIRS.get(".".join(torch_version.split(".")[:2]), "") if torch_version else ""
    fix = f"install fbgemm-gpu-cpu=={wanted}.* (or fbgemm-gpu=={wanted}.* for CUDA)" if wanted else "see docs"
    fbgemm_version = _version("fbgemm_gpu-cpu") or _version("fbgemm-gpu") or _version("fbgemm-gpu-cpu")
    if find_spec("fbgemm_gpu") is None:
        return FbgemmStatus(False, f"fbgemm_gpu is not installed (torch is {torch_version or 'absent'}); {fix}")
    if fbgemm_version and wanted and not fbgemm_version.startswith(f"{wanted}."):
        return FbgemmStatus(False, f"fbgemm_gpu {fbgemm_version} was not built for torch {torch_version}; {fix}")
    return FbgemmStatus(True)


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


@dataclass(frozen=True)
class OpsSpec:
    """``ops.*``, resolved.

    Attributes:
        backend: The kernels: ``auto`` takes FBGEMM for the tables that it can hold, the reference for the others, and
            says so.
    """

    backend: str


@dataclass
class OpsConfig:
    """``ops.*``: ``auto`` takes FBGEMM where it can and the reference elsewhere, and says so."""

    backend: str = AUTO

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``ops``."""
        if self.backend != AUTO and self.backend not in POOLED_LOOKUPS:
            return [unknown_name("backend", self.backend, "ops backend", (AUTO, *POOLED_LOOKUPS.names()))]
        if self.backend == "fbgemm" and not (status := fbgemm_status()).usable:
            return [Finding("backend", f"'fbgemm' was asked for by name, but {status.reason}", "or use ops=auto")]
        return []

    def to_spec(self) -> OpsSpec:
        """Return the frozen form of a valid configuration."""
        return OpsSpec(self.backend)


def choose_backend(
    asked: str,
    device: Device,
    table: TableSpec,
    width: int,
    optimizer: SparseOptimizerSpec,
    *,
    shares_row_state: bool = False,
) -> tuple[str, str]:
    """Return the backend for one table and, if it is not the first choice, why.

    Args:
        asked: ``auto`` or a backend's name.
        device: Where it will run.
        table: The table.
        width: The narrowest width of its shards that matters to the kernel (each must be a legal one).
        optimizer: The sparse optimizer.
        shares_row_state: As in ``refusal``.

    Returns:
        The backend and the reason why the preferred one was passed over (empty if it was not).
    """
    if asked != AUTO:
        return asked, ""
    status = fbgemm_status()
    reason: str | None = status.reason
    if status.usable:
        reason = refusal("fbgemm", device, table, width, optimizer, shares_row_state=shares_row_state)
    return ("reference", reason) if reason else ("fbgemm", "")
