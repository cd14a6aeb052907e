"""output_dist: pooled rows travel to the ranks whose samples they belong to, their gradients travel back.

One all-to-all each way for all tables. It is posted by one autograd node and awaited by another, so that what the
model computes between them (the bottom MLP, and its backward) overlaps with the transfer.

Shapes: W ranks, B samples of this rank, C capacity, D_r columns of rank r's message, D the width of the result.
"""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from neo.comms.codecs import Codec
from neo.comms.collectives import Collectives, Work
from neo.errors import UnsupportedError
from neo.sharded.layout import Layout


@dataclass(frozen=True)
class _Move:
    """Columns of one rank's message that belong to columns of the result."""

    rank: int
    source: int
    target: int
    width: int
    adds: bool  # a further row split of columns that an earlier move has set


@dataclass(frozen=True)
class _MeanColumns:
    """Columns of the result that are divided by the bag lengths of a feature."""

    feature: int
    begin: int
    end: int


class OutputDist:
    """The exchange of pooled rows for one collection.

    Args:
        layout: The slots of all ranks.
        collectives: This rank's group.
        feature_position: Row of each feature in the bag lengths.
        forward_codec: How pooled rows are written on the wire.
        backward_codec: How their gradients are.
    """

    def __init__(
        self,
        layout: Layout,
        collectives: Collectives,
        feature_position: dict[str, int],
        forward_codec: Codec,
        backward_codec: Codec,
    ) -> None:
        self.layout = layout
        self.comms = collectives
        self.forward_codec, self.backward_codec = forward_codec, backward_codec
        self.dims = [layout.message_dim(rank) for rank in range(collectives.world_size)]
        self.group_dims = [
            sum(slot.shard.num_columns for slot in group.slots) for group in layout.groups[collectives.rank]
        ]
        self.replicated = [output for output in layout.outputs if output.data_parallel]
        self.moves = _moves(layout, collectives.world_size)
        self.mean_columns = [
            _MeanColumns(feature_position[output.feature], output.column, output.column + output.dim)
            for output in layout.outputs
            if output.is_mean and not output.weighted  # weighted means have their weights normalised instead
        ]
        self.is_used = any(self.dims)
        self.num_backwards = 0
        self._open: weakref.WeakSet[Transfer] = weakref.WeakSet()

    def opened(self, transfer: "Transfer") -> None:
        """Note a forward that may have a backward."""
        self._open.add(transfer)

    def begin_backward(self, transfer: "Transfer") -> None:
        """Refuse a backward that would not be one exact step for the whole global batch.

        Raises:
            UnsupportedError: The forward had its backward already, or another forward still waits for its own.
        """
        if transfer.is_spent:
            raise UnsupportedError(
                "this forward of the EmbeddingBagCollection had its backward already, and its tables their step; "
                "call backward once (without retain_graph=True)"
            )
        if any(other is not transfer for other in self._open):
            raise UnsupportedError(
                "an EmbeddingBagCollection was called again before the backward of its last forward, which would give "
                "two optimizer steps where one is due; join both inputs into one batch, and run a forward whose "
                "gradient is not wanted under torch.no_grad()"
            )
        transfer.is_spent = True
        self._open.discard(transfer)
        self.num_backwards += 1


@dataclass(eq=False)
class Transfer:
    """One batch on its way: what both autograd nodes share.

    Attributes:
        dist: The exchange.
        batch_sizes: ``[W]``.
        capacity: C.
        inverse_lengths: ``[F, B]`` one over each bag's length, 0 for an empty bag; None if no output is a mean.
        gradient_divisor: What the gradients that leave are divided by (W: the dense side averages over ranks;
            a division, since multiplying by 1/W would not undo the loss's factor W to the bit).
    """

    dist: OutputDist
    batch_sizes: tuple[int, ...]
    capacity: int
    inverse_lengths: Tensor | None
    gradient_divisor: float
    wire: Tensor | None = None
    work: Work | None = None
    kept: list[Tensor] = field(default_factory=list)  # what the transfer reads must live until it is done
    is_spent: bool = False  # its backward has begun

    @property
    def own_batch_size(self) -> int:
        """Samples of this rank."""
        return self.batch_sizes[self.dist.comms.rank]


def send_pooled(transfer: Transfer, pooled: Sequence[Tensor], extra: Sequence[Tensor], anchor: Tensor) -> Tensor:
    """Post the exchange of ``pooled`` (``[W * C, columns]`` per group) and return a token for ``receive_pooled``."""
    token: Tensor = _Send.apply(transfer, len(pooled), anchor, *pooled, *extra)  # type: ignore[no-untyped-call]
    return token


def receive_pooled(transfer: Transfer, token: Tensor, replicated: Sequence[Tensor]) -> Tensor:
    """Await the exchange and return ``[B, D]``: all outputs in declared order.

    Args:
        transfer: The batch on its way.
        token: What ``send_pooled`` returned.
        replicated: ``[B, dim]`` sums of each data-parallel output.
    """
    result: Tensor = _Receive.apply(transfer, token, *replicated)  # type: ignore[no-untyped-call]
    return result


class _Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, transfer: Transfer, num_groups: int, anchor: Tensor, *tensors: Tensor) -> Tensor:
        ctx.transfer, ctx.num_groups = transfer, num_groups
        ctx.extra = [(part.shape, part.dtype, part.device) for part in tensors[num_groups:]]
        ctx.needs_extra = [part.requires_grad for part in tensors[num_groups:]]
        dist, rank = transfer.dist, transfer.dist.comms.rank
        if dist.is_used:
            message = _to_message(transfer, tensors[:num_groups]) if num_groups else anchor.new_empty(0)
            splits = [size * dist.dims[rank] for size in transfer.batch_sizes]
            wire = dist.forward_codec.encode(message, ())
            receive = [transfer.own_batch_size * dim for dim in dist.dims]
            transfer.wire = wire.new_empty(sum(receive))
            transfer.kept = [wire]
            transfer.work = dist.comms.all_to_all(transfer.wire, wire, receive, splits)
        return anchor.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, token: Tensor) -> tuple[Tensor | None, ...]:
        transfer: Transfer = ctx.transfer
        gradients: list[Tensor | None] = []
        if transfer.dist.is_used:
            assert transfer.work is not None and transfer.wire is not None
            transfer.work.wait()
            message = transfer.dist.backward_codec.decode(transfer.wire, ())
            gradients += _from_message(transfer, message)
            transfer.wire, transfer.work, transfer.kept = None, None, []
        extra = [
            torch.zeros(shape, dtype=dtype, device=device) if needed else None
            for (shape, dtype, device), needed in zip(ctx.extra, ctx.needs_extra, strict=True)
        ]
        return None, None, None, *gradients, *extra


class _Receive(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, transfer: Transfer, token: Tensor, *replicated: Tensor) -> Tensor:
        ctx.transfer = transfer
        dist = transfer.dist
        batch_size = transfer.own_batch_size
        device = token.device
        result = torch.empty(batch_size, dist.layout.output_dim, device=device)
        if dist.is_used:
            assert transfer.work is not None and transfer.wire is not None
            transfer.work.wait()
            flat = dist.forward_codec.decode(transfer.wire, ())
            blocks = _blocks(flat, batch_size, dist.dims)
            for move in dist.moves:
                source = blocks[move.rank][:, move.source : move.source + move.width]
                target = result[:, move.target : move.target + move.width]
                if move.adds:
                    target.add_(source)
                else:
                    target.copy_(source)
            transfer.wire, transfer.work, transfer.kept = None, None, []
        for output, sums in zip(dist.replicated, replicated, strict=True):
            result[:, output.column : output.column + output.dim] = sums
        if transfer.inverse_lengths is not None:
            _scale_means(result, transfer)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        transfer: Transfer = ctx.transfer
        dist = transfer.dist
        dist.begin_backward(transfer)
        batch_size = transfer.own_batch_size
        gradient = gradient.to(torch.float32)
        if transfer.inverse_lengths is not None:
            gradient = gradient.clone()
            _scale_means(gradient, transfer)
        if dist.is_used:
            splits = [batch_size * dim for dim in dist.dims]
            message = gradient.new_empty(sum(splits))
            blocks = _blocks(message, batch_size, dist.dims)
            for move in dist.moves:
                source = gradient[:, move.target : move.target + move.width]
                target = blocks[move.rank][:, move.source : move.source + move.width]
                torch.div(source, transfer.gradient_divisor, out=target)
            wire = dist.backward_codec.encode(message, ())
            receive = [size * dist.dims[dist.comms.rank] for size in transfer.batch_sizes]
            transfer.wire = wire.new_empty(sum(receive))
            transfer.kept = [wire]
            transfer.work = dist.comms.all_to_all(transfer.wire, wire, receive, splits)
        replicated = [gradient[:, output.column : output.column + output.dim] for output in dist.replicated]
        return None, gradient.new_zeros(()), *replicated


def _scale_means(rows: Tensor, transfer: Transfer) -> None:
    """Divide the columns of every unweighted mean output by its bag lengths, in place."""
    assert transfer.inverse_lengths is not None
    for mean in transfer.dist.mean_columns:
        rows[:, mean.begin : mean.end].mul_(transfer.inverse_lengths[mean.feature].unsqueeze(1))


def _to_message(transfer: Transfer, pooled: Sequence[Tensor]) -> Tensor:
    """Return the flat message: for each rank its samples' rows, all groups side by side."""
    sizes, capacity = transfer.batch_sizes, transfer.capacity
    rows = pooled[0] if len(pooled) == 1 else torch.cat(list(pooled), dim=1)
    if all(size == capacity for size in sizes):
        return rows.reshape(-1)
    parts = [rows[rank * capacity : rank * capacity + size] for rank, size in enumerate(sizes)]
    return torch.cat(parts).reshape(-1)


def _from_message(transfer: Transfer, message: Tensor) -> list[Tensor]:
    """Return the gradients ``[W * C, columns]`` of each group from the flat message."""
    dist, sizes, capacity = transfer.dist, transfer.batch_sizes, transfer.capacity
    width = dist.dims[dist.comms.rank]
    if not dist.group_dims:
        return []
    if all(size == capacity for size in sizes):
        rows = message.view(-1, width)
    else:
        rows = message.new_zeros(len(sizes) * capacity, width)
        received = message.view(-1, width).split(list(sizes))
        for rank, part in enumerate(received):
            rows[rank * capacity : rank * capacity + len(part)] = part
    if len(dist.group_dims) == 1:
        return [rows]
    return [part.contiguous() for part in rows.split(dist.group_dims, dim=1)]


def _blocks(flat: Tensor, batch_size: int, dims: Sequence[int]) -> list[Tensor]:
    parts = flat.split([batch_size * dim for dim in dims])
    return [part.view(batch_size, dim) for part, dim in zip(parts, dims, strict=True)]


def _moves(layout: Layout, world_size: int) -> list[_Move]:
    """Return all moves, so ordered that row splits are added in row order whatever rank holds them."""
    slots = [slot for rank in range(world_size) for slot in layout.slots(rank)]
    slots.sort(key=lambda slot: (slot.output, slot.shard.column_begin, slot.shard.row_begin))
    return [
        _Move(
            rank=slot.rank,
            source=slot.column,
            target=layout.outputs[slot.output].column + slot.shard.column_begin,
            width=slot.shard.num_columns,
            adds=slot.shard.row_begin > 0,
        )
        for slot in slots
    ]
