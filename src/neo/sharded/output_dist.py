"""output_dist: pooled vectors travel to the ranks whose samples they belong to, their gradients travel back.

The exchange is posted by one autograd node and awaited by another, so that what the model computes between them (the
bottom MLP, and its backward) overlaps with the transfer. Everything that every rank must do in step (the hops, the
all-reduce of replicas, the squares of shared rows) happens inside these two nodes, in one fixed order.

Shapes: W ranks, B_c bags of this rank in bag class c, D_c columns of the class, C the capacity of a group.
"""

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from neo.comms.codecs import Codec
from neo.comms.collectives import Collectives
from neo.comms.spec import ExchangeMode
from neo.errors import UnsupportedError
from neo.sharded.data_parallel import Replicas
from neo.sharded.hops import BagCounts, Hop, Posted, SentRows
from neo.sharded.input_dist import GroupInput
from neo.sharded.layout import Layout, Source
from neo.sharded.routes import make_routes, pooled_runs
from neo.sharded.sources import SourcePlace
from neo.sharded.stages import Stage, stage
from neo.sharded.unfused import UnfusedGroups


@dataclass(frozen=True)
class _MeanColumns:
    """Columns of a bag class that are divided by the bag lengths of a source."""

    bag_class: int
    row: int
    begin: int
    end: int


class OutputDist:
    """The exchange of pooled vectors for one collection.

    Args:
        layout: The slots of all ranks.
        collectives: This rank's group.
        places: Where the lengths of each source stand.
        forward_codec: How pooled vectors are written on the wire.
        backward_codec: How their gradients are.
        mode: The way between nodes.
        replicas: The data-parallel tables.
        unfused: The lookup groups that are updated in parts.
    """

    def __init__(
        self,
        layout: Layout,
        collectives: Collectives,
        places: Mapping[Source, SourcePlace],
        *,
        forward_codec: Codec,
        backward_codec: Codec,
        mode: ExchangeMode,
        replicas: Replicas,
        unfused: UnfusedGroups,
    ) -> None:
        self.layout = layout
        self.comms = collectives
        self.forward_codec, self.backward_codec = forward_codec, backward_codec
        self.replicas, self.unfused = replicas, unfused
        self._runs = pooled_runs(layout, collectives.rank)
        routes = make_routes(layout, collectives.rank, collectives.world_size, mode)
        self._hops = [Hop(collectives, route) for route in routes]
        self.mean_columns = [
            _MeanColumns(output.bag_class, places[output.source].row, output.column, output.column + output.dim)
            for output in layout.outputs
            if output.is_mean and not output.weighted  # weighted means have their weights normalised instead
        ]
        self.is_used = any(layout.groups)
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

    def send(self, transfer: "Transfer", pooled: Sequence[Tensor]) -> Posted:
        """Run every hop but the last, and post that."""
        bags = transfer.bag_counts
        runs = [pooled[p.group][:, p.begin : p.begin + p.run.columns] for p in self._runs]
        for index, hop in enumerate(self._hops):
            posted = hop.send(runs, self._sent_rows(transfer, index), bags, self.forward_codec)
            if hop is self._hops[-1]:
                break
            arrived = hop.receive(posted, bags, self.forward_codec)
            runs = [arrived[run.bag_class] for run in self._next_runs(index)]
        return posted

    def receive(self, transfer: "Transfer", posted: Posted) -> list[Tensor]:
        """Return the results ``[B_c, D_c]`` of all bag classes; columns of replicated outputs are not set."""
        return self._hops[-1].receive(posted, transfer.bag_counts, self.forward_codec)

    def send_back(self, transfer: "Transfer", gradients: Sequence[Tensor]) -> Posted:
        """Post the last hop's way back."""
        return self._hops[-1].send_back(
            gradients, transfer.bag_counts, self.backward_codec, transfer.loss_scale, transfer.gradient_divisor
        )

    def receive_back(self, transfer: "Transfer", posted: Posted) -> list[Tensor]:
        """Return the gradient ``[W * C, columns]`` of each lookup group."""
        bags, codec, scale = transfer.bag_counts, self.backward_codec, transfer.loss_scale
        for index in range(len(self._hops) - 1, -1, -1):
            hop = self._hops[index]
            runs = hop.receive_back(posted, self._sent_rows(transfer, index), bags, codec, scale)
            if index > 0:
                by_class = {run.bag_class: part for run, part in zip(self._next_runs(index - 1), runs, strict=True)}
                previous = self._hops[index - 1]
                nothing = posted.wire.new_empty(0, 0, dtype=torch.float32)
                gradients = [by_class.get(c, nothing) for c in range(len(self.layout.bag_classes))]
                posted = previous.send_back(gradients, bags, codec, scale)
        groups: list[list[Tensor]] = [[] for _ in self.layout.groups[self.comms.rank]]
        for own, part in zip(self._runs, runs, strict=True):
            groups[own.group].append(part)
        return [parts[0] if len(parts) == 1 else torch.cat(parts, dim=1) for parts in groups]

    def _next_runs(self, index: int) -> tuple[Any, ...]:
        """Return this rank's runs of the hop after ``index``."""
        return self._hops[index + 1].route.runs[self.comms.rank]

    def _sent_rows(self, transfer: "Transfer", index: int) -> SentRows:
        if index == 0:
            world_size = self.comms.world_size
            capacities = [transfer.capacities[own.group] for own in self._runs]
            begins = tuple({final: final * capacity for final in range(world_size)} for capacity in capacities)
            return SentRows(begins, tuple(world_size * capacity for capacity in capacities))
        finals = self._hops[index - 1].route.rows
        begins_of, totals = [], []
        for run in self._next_runs(index - 1):
            begin, found = 0, {}
            for final in finals:
                found[final] = begin
                begin += transfer.bag_counts[final][run.bag_class]
            begins_of.append(found)
            totals.append(begin)
        return SentRows(tuple(begins_of), tuple(totals))


@dataclass(eq=False)
class Transfer:
    """One batch on its way: what both autograd nodes share.

    Attributes:
        dist: The exchange.
        bag_counts: ``[W][classes]``.
        groups: What this rank's lookup groups read.
        replica_inputs: What its replicas read.
        inverse_lengths: Per bag class one over each bag's length, 0 for an empty bag; empty if no output is a mean.
        gradient_divisor: What the gradients that leave are divided by (W: the dense side averages over ranks;
            a division, since multiplying by 1/W would not undo the loss's factor W to the bit).
        loss_scale: What the backward codec multiplies by.
    """

    dist: OutputDist
    bag_counts: BagCounts
    groups: tuple[GroupInput, ...]
    replica_inputs: Sequence[GroupInput]
    inverse_lengths: Mapping[int, Tensor]
    gradient_divisor: float
    loss_scale: float
    posted: Posted | None = None
    is_spent: bool = False  # its backward has begun
    capacities: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.capacities = tuple(group.capacity for group in self.groups)

    def take(self) -> Posted:
        """Return the exchange under way, once."""
        if self.posted is None:
            raise UnsupportedError(
                "the outputs of this EmbeddingBagCollection.start() were taken already; keep what wait() or by_name() "
                "returned"
            )
        posted, self.posted = self.posted, None
        return posted


def send_pooled(transfer: Transfer, pooled: Sequence[Tensor], extra: Sequence[Tensor], anchor: Tensor) -> Tensor:
    """Post the exchange of ``pooled`` (``[W * C, columns]`` per group) and return a token for ``receive_pooled``.

    Args:
        transfer: The batch on its way.
        pooled: Results of the lookups; those of unfused groups carry no graph.
        extra: Weights that were received: whatever a rank looks up, their exchange has its backward on every rank.
        anchor: A scalar that requires a gradient.
    """
    unfused = [transfer.groups[index].weights for index in transfer.dist.unfused.indices]
    weights = [part for part in unfused if part is not None]
    token: Tensor = _Send.apply(transfer, len(pooled), len(weights), anchor, *pooled, *weights, *extra)  # type: ignore[no-untyped-call]
    return token


def receive_pooled(transfer: Transfer, token: Tensor) -> tuple[Tensor, ...]:
    """Await the exchange and return ``[B_c, D_c]`` of every bag class, columns in declared order."""
    weights = [part.weights for part in transfer.replica_inputs if part.weights is not None]
    results: tuple[Tensor, ...] = _Receive.apply(transfer, token, *weights)  # type: ignore[no-untyped-call]
    return results


class _Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, transfer: Transfer, num_groups: int, num_weights: int, anchor: Tensor, *t: Tensor) -> Tensor:
        ctx.transfer = transfer
        ctx.extra = [(part.shape, part.dtype, part.device) for part in t[num_groups + num_weights :]]
        ctx.needs_extra = [part.requires_grad for part in t[num_groups + num_weights :]]
        ctx.needs_weights = [part.requires_grad for part in t[num_groups : num_groups + num_weights]]
        if transfer.dist.is_used:
            with stage(Stage.OUTPUT_DIST):
                transfer.posted = transfer.dist.send(transfer, t[:num_groups])
        return anchor.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, token: Tensor) -> tuple[Tensor | None, ...]:
        transfer: Transfer = ctx.transfer
        dist = transfer.dist
        gradients: list[Tensor | None] = []
        weights: list[Tensor | None] = []
        if dist.is_used:
            with stage(Stage.OUTPUT_DIST_BACKWARD):
                found = dist.receive_back(transfer, transfer.take())
            with stage(Stage.SPARSE_UPDATE):
                weights = dist.unfused.step(transfer.groups, found, any(ctx.needs_weights))
            gradients += [None if index in dist.unfused.indices else part for index, part in enumerate(found)]
        extra = [
            torch.zeros(shape, dtype=dtype, device=device) if needed else None
            for (shape, dtype, device), needed in zip(ctx.extra, ctx.needs_extra, strict=True)
        ]
        return None, None, None, None, *gradients, *weights, *extra


class _Receive(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, transfer: Transfer, token: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.transfer = transfer
        ctx.needs_weights = any(part.requires_grad for part in weights)
        dist, bags = transfer.dist, transfer.bag_counts[transfer.dist.comms.rank]
        if dist.is_used:
            with stage(Stage.OUTPUT_DIST):
                results = dist.receive(transfer, transfer.take())
        else:
            widths = [bag_class.width for bag_class in dist.layout.bag_classes]
            results = [torch.empty(n, width, device=token.device) for n, width in zip(bags, widths, strict=True)]
        with stage(Stage.LOOKUP):
            dist.replicas.pool(transfer.replica_inputs, results)
        _scale_means(results, transfer)
        return tuple(results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        transfer: Transfer = ctx.transfer
        dist = transfer.dist
        dist.begin_backward(transfer)
        scaled = [
            gradient.to(torch.float32, copy=c in transfer.inverse_lengths) for c, gradient in enumerate(gradients)
        ]
        _scale_means(scaled, transfer)
        if dist.is_used:
            with stage(Stage.OUTPUT_DIST_BACKWARD):
                transfer.posted = dist.send_back(transfer, scaled)
        weights: list[Tensor | None] = []
        if transfer.replica_inputs:
            divisor = transfer.gradient_divisor
            with stage(Stage.SPARSE_UPDATE):
                weights = dist.replicas.step(transfer.replica_inputs, scaled, divisor, ctx.needs_weights)
        return None, gradients[0].new_zeros(()), *weights


def _scale_means(rows: Sequence[Tensor], transfer: Transfer) -> None:
    """Divide the columns of every unweighted mean output by its bag lengths, in place."""
    for mean in transfer.dist.mean_columns:
        inverse = transfer.inverse_lengths[mean.bag_class][mean.row]
        rows[mean.bag_class][:, mean.begin : mean.end].mul_(inverse.unsqueeze(1))
