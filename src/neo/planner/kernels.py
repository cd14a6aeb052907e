"""Which ops backend holds each table, from the capability matrix; what was passed over is told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neo.errors import ConfigError, Finding, unknown_name
from neo.ops.spec import AUTO, POOLED_LOOKUPS, Device, capability, choose_backend, refusal
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.table_names import bare_name
from neo.tables.spec import TableSpec

_MOST_NAMED = 3
_PREFERRED = "fbgemm"  # What `auto` takes where it can: neo.ops.spec.choose_backend.


@dataclass(frozen=True)
class KernelRequest:
    """The table that needs a kernel.

    Attributes:
        table: The table.
        widths: Widths of its shards; of a table that is yet to be split, its dim (shards are cut to fit the kernel).
        asked: ``auto`` or the backend asked for.
    """

    table: TableSpec
    widths: tuple[int, ...]
    asked: str = AUTO


@dataclass(frozen=True)
class KernelChoices:
    """The decision.

    Attributes:
        kernels: Backend by plan key.
        fallbacks: What was replaced, and why.
    """

    kernels: Mapping[str, str]
    fallbacks: tuple[str, ...]


def decide_kernels(
    requests: Mapping[str, KernelRequest], *, device: Device, optimizer: SparseOptimizerSpec
) -> tuple[KernelChoices, list[Finding]]:
    """Return the backend of each table, and a finding for each table that none can hold as asked."""
    kernels: dict[str, str] = {}
    reasons: dict[str, list[str]] = {}
    problems: dict[Finding, None] = {}
    for key, request in requests.items():
        kernel, reason = _choose(request, device, optimizer)
        if reason:
            reasons.setdefault(_without_name(reason, request.table), []).append(key)
        for width in request.widths:
            refused = refusal(kernel, device, request.table, width, optimizer)
            if refused is not None:
                problems[_refused(request.asked, refused)] = None
        kernels[key] = kernel
    fallbacks = tuple(_fallback(keys, kernels[keys[0]], reason) for reason, keys in reasons.items())
    return KernelChoices(kernels, fallbacks), list(problems)


def dim_multiple(kernel: str, device: Device) -> int:
    """Return the number that the width of every shard of this kernel must be a multiple of."""
    able = capability(kernel, device)
    return 1 if able is None else able.dim_multiple


def replaced_kernels(
    planned: Mapping[str, KernelRequest], *, ops_backend: str, device: Device, optimizer: SparseOptimizerSpec
) -> tuple[Mapping[str, KernelRequest], tuple[str, ...]]:
    """Put the run's ``ops.backend`` in place of a given plan's kernels where it must be, and tell it.

    A plan's kernel stays if the run asks for ``auto`` and the kernel works here.

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
        why = _why_replaced(request, ops_backend, device, optimizer)
        if why is not None:
            told.append(f"{bare_name(key)}: the plan's kernel {request.asked} is replaced: {why}")
        keep = request.asked not in (AUTO, ops_backend) and why is None
        # What `auto` prefers needs no keeping: where it does not work, `auto` tells why.
        asked = request.asked if keep and request.asked != _PREFERRED else ops_backend
        requests[key] = KernelRequest(request.table, request.widths, asked)
    return requests, tuple(told)


def _why_replaced(
    request: KernelRequest, ops_backend: str, device: Device, optimizer: SparseOptimizerSpec
) -> str | None:
    if request.asked in (AUTO, ops_backend):
        return None
    if ops_backend != AUTO:
        return f"ops.backend={ops_backend}"
    if request.asked == _PREFERRED:
        return None
    refused = (refusal(request.asked, device, request.table, width, optimizer) for width in request.widths)
    return next((reason for reason in refused if reason is not None), None)


def _choose(request: KernelRequest, device: Device, optimizer: SparseOptimizerSpec) -> tuple[str, str]:
    """Return the backend that takes every width, and why the preferred one was passed over."""
    choices = [choose_backend(request.asked, device, request.table, width, optimizer) for width in request.widths]
    return next((choice for choice in choices if choice[1]), choices[0])


def _refused(asked: str, reason: str) -> Finding:
    fix = "no other backend takes it" if asked == AUTO else "use ops=auto, which gives such tables to another backend"
    return Finding("ops.backend", reason, fix)


def _without_name(reason: str, table: TableSpec) -> str:
    """Take the table's name out of a reason, so that tables with the same one are told together."""
    return reason.replace(f"'{table.name}' has", "the width is")


def _fallback(keys: Sequence[str], kernel: str, reason: str) -> str:
    names = [bare_name(key) for key in keys]
    named = (
        ", ".join(names) if len(names) <= _MOST_NAMED else f"{', '.join(names[:_MOST_NAMED])} and {len(names) - 3} more"
    )
    return f"{named}: kernel {kernel} in place of {_PREFERRED}: {reason}"
