"""Which ops backend holds each table, from the capability matrix; what was passed over is told."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from neo.errors import ConfigError, Finding, unknown_name
from neo.ops.spec import AUTO, POOLED_LOOKUPS, Device, capability, choose_backend, refusal
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import SPLIT_BY_COLUMNS, ColumnWiseSemantics, ShardingType
from neo.plan.table_names import bare_name, several_named
from neo.planner.layout import column_ranges, num_column_parts
from neo.planner.semantics import shares_row_state
from neo.tables.spec import TableSpec

_SUBJECT = "<tables>"  # Stands for the tables in a reason that several of them share.
PREFERRED = "fbgemm"  # What `auto` takes where it can: neo.ops.spec.choose_backend.
REPLICA_KERNEL = "reference"  # Data-parallel tables are plain PyTorch whatever the backend: neo.sharded.data_parallel.


@dataclass(frozen=True)
class KernelRequest:
    """The table that needs a kernel.

    Attributes:
        table: The table.
        widths: Widths of its shards; of a table that is yet to be split, its dim (shards are cut to fit the kernel).
        optimizer: Its sparse optimizer.
        asked: ``auto`` or the backend asked for.
        shares_row_state: Whether its column shards must share the state of their rows.
    """

    table: TableSpec
    widths: tuple[int, ...]
    optimizer: SparseOptimizerSpec
    asked: str = AUTO
    shares_row_state: bool = False


@dataclass(frozen=True)
class KernelChoices:
    """The decision.

    Attributes:
        kernels: Backend by plan key.
        fallbacks: What was replaced, and why.
    """

    kernels: Mapping[str, str]
    fallbacks: tuple[str, ...]


def decide_kernels(requests: Mapping[str, KernelRequest], *, device: Device) -> tuple[KernelChoices, list[Finding]]:
    """Return the backend of each table, and a finding for each table that none can hold as asked."""
    kernels: dict[str, str] = {}
    reasons: dict[str, list[str]] = {}
    refusals: dict[tuple[str, str, bool], list[KernelRequest]] = {}
    for key, request in requests.items():
        kernel, reason = _choose(request, device)
        if reason:
            reasons.setdefault(_without_name(reason, request.table), []).append(key)
        for width in request.widths:
            refused = _refusal(kernel, device, request, width)
            if refused is not None:
                by_sharing = request.shares_row_state and refused != _refusal(
                    kernel, device, replace(request, shares_row_state=False), width
                )
                reason = refused.replace(_subject(request.table), _SUBJECT)
                alike = refusals.setdefault((request.asked, reason, by_sharing), [])
                alike += [] if request in alike else [request]
        kernels[key] = kernel
    fallbacks = tuple(_fallback(keys, kernels[keys[0]], reason) for reason, keys in reasons.items())
    findings = [_refused(*why, requests) for why, requests in refusals.items()]
    return KernelChoices(kernels, fallbacks), findings


def requests_of(
    tables: Mapping[str, TableSpec],
    forced: Mapping[str, ShardingType | None],
    *,
    ops_backend: str,
    device: Device,
    optimizers: Mapping[str, SparseOptimizerSpec],
    semantics: ColumnWiseSemantics,
    world_size: int,
    local_world_size: int,
) -> dict[str, KernelRequest]:
    """Return what each table that is yet to be placed asks for, in alphabetical order of their keys.

    Args:
        tables: The tables by plan key.
        forced: Sharding type of each; None is open, and an open table is never split so that it must share state.
        ops_backend: ``auto`` or the backend asked for.
        device: Where the kernels will run.
        optimizers: Sparse optimizer of each table.
        semantics: What a row-wise optimizer is to do on column shards.
        world_size: Ranks.
        local_world_size: Ranks of a full node.
    """
    requests = {}
    for key in sorted(tables):
        table, sharding_type = tables[key], forced[key]
        asked = REPLICA_KERNEL if sharding_type is ShardingType.DATA_PARALLEL else ops_backend
        request = KernelRequest(table, (table.embedding_dim,), optimizers[key], asked)
        if sharding_type in SPLIT_BY_COLUMNS:
            # The kernel decides where columns can be cut, and whether they are cut what the kernel must do.
            multiple = dim_multiple(_choose(request, device)[0], device)
            num_parts = num_column_parts(sharding_type, world_size, local_world_size)
            num_ranges = len(column_ranges(table, num_parts, multiple))
            request = replace(request, shares_row_state=shares_row_state(num_ranges, optimizers[key], semantics))
        requests[key] = request
    return requests


def dim_multiple(kernel: str, device: Device) -> int:
    """Return the number that the width of every shard of this kernel must be a multiple of."""
    able = capability(kernel, device)
    return 1 if able is None else able.dim_multiple


def requests_of_given_plan(
    planned: Mapping[str, KernelRequest], *, replicated: Collection[str], ops_backend: str
) -> tuple[Mapping[str, KernelRequest], tuple[str, ...]]:
    """Put the run's ``ops.backend`` in place of a given plan's kernels, and tell it.

    Args:
        planned: The tables, asking for the plan's kernels.
        replicated: Keys of the data-parallel ones.
        ops_backend: What the run asks for; ``auto`` leaves a plan's kernel.

    Raises:
        ConfigError: A kernel in the plan is no ops backend.
    """
    unknown = [
        unknown_name(f"tables.{key}.kernel", request.asked, "known ops backend", (AUTO, *POOLED_LOOKUPS.names()))
        for key, request in planned.items()
        if request.asked != AUTO and request.asked not in POOLED_LOOKUPS
    ]
    if unknown:
        raise ConfigError(unknown)
    requests: dict[str, KernelRequest] = {}
    told = []
    for key, request in planned.items():
        wanted, why = ops_backend, f"ops.backend={ops_backend}"
        if key in replicated:
            wanted, why = REPLICA_KERNEL, "data_parallel tables are held by it"
        elif ops_backend == AUTO:
            # What `auto` prefers may be passed over where it does not work here; `auto` tells why.
            wanted = AUTO if request.asked == PREFERRED else request.asked
        if request.asked not in (AUTO, PREFERRED if wanted == AUTO else wanted):
            told.append(f"{bare_name(key)}: kernel {wanted} in place of the plan's {request.asked}: {why}")
        requests[key] = replace(request, asked=wanted)
    return requests, tuple(told)


def replicas_fallback(keys: Sequence[str], ops_backend: str) -> tuple[str, ...]:
    """Return what to say if a backend was asked for by name and data-parallel tables do not use it."""
    if not keys or ops_backend in (AUTO, REPLICA_KERNEL):
        return ()
    why = "data_parallel tables are held by it"
    return (f"{several_named(keys)}: kernel {REPLICA_KERNEL} in place of {ops_backend}: {why}",)


def _choose(request: KernelRequest, device: Device) -> tuple[str, str]:
    """Return the backend that takes every width, and why the preferred one was passed over."""
    choices = [
        choose_backend(
            request.asked,
            device,
            request.table,
            width,
            request.optimizer,
            shares_row_state=request.shares_row_state,
        )
        for width in request.widths
    ]
    return next((choice for choice in choices if choice[1]), choices[0])


def _refusal(kernel: str, device: Device, request: KernelRequest, width: int) -> str | None:
    return refusal(kernel, device, request.table, width, request.optimizer, shares_row_state=request.shares_row_state)


def _refused(asked: str, reason: str, by_sharing: bool, requests: Sequence[KernelRequest]) -> Finding:
    fix = "no other backend takes it" if asked == AUTO else "use ops=auto, which gives such tables to another backend"
    names = [request.table.name for request in requests]
    if by_sharing:
        problem = f"{reason}, and those of {several_named(names)} are split"
        return Finding("ops.backend", problem, f"{fix}, or sharding.column_wise_semantics=per_shard")
    subject = _subject(requests[0].table) if len(names) == 1 else f"{several_named(names)} have"
    return Finding("ops.backend", reason.replace(_SUBJECT, subject), fix)


def _subject(table: TableSpec) -> str:
    return f"'{table.name}' has"


def _without_name(reason: str, table: TableSpec) -> str:
    """Take the table's name out of a reason, so that tables with the same one are told together."""
    return reason.replace(_subject(table), "the width is")


def _fallback(keys: Sequence[str], kernel: str, reason: str) -> str:
    return f"{several_named(keys)}: kernel {kernel} in place of {PREFERRED}: {reason}"
