"""input_dist: every rank's ids travel to the ranks that hold their rows, one lengths and one values exchange in all.

Shapes: W ranks, S slots of this rank, B samples of this rank, C the capacity (the largest local batch so far),
H the header. The lengths message to a rank is ``[H + slots * C]``: the header carries the sender's batch size, the
capacity that it needs and the error that it found, so that neither uneven batches nor bad ids need a collective of
their own; a batch over the capacity repeats the exchange once, with a larger capacity, on all ranks.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from neo.comms.collectives import Collectives
from neo.data.batch import SparseFeatures
from neo.sharded.input_check import ErrorKind, FeatureTable, InputError, raise_input_errors
from neo.sharded.layout import Layout

_HEADER = 8


@dataclass(frozen=True)
class GroupInput:
    """What one lookup group reads: ids ``[N]``, offsets ``[slots * W * C + 1]``, weights ``[N]`` or None."""

    values: Tensor
    offsets: Tensor
    weights: Tensor | None


@dataclass(frozen=True)
class LocalInput:
    """All ids that this rank looks up.

    Attributes:
        groups: One per lookup group of the layout.
        batch_sizes: ``[W]`` samples of each rank.
        capacity: C; each rank's samples occupy C bags per slot, the surplus ones empty.
        received_weights: The weights as received, if they take part in the backward.
    """

    groups: tuple[GroupInput, ...]
    batch_sizes: tuple[int, ...]
    capacity: int
    received_weights: Tensor | None


@dataclass(frozen=True)
class _Parts:
    """The pieces of the batch that slots send, indexed alike: features first, then row splits."""

    lengths: Tensor  # [pieces, B]
    values: list[Tensor]
    weights: list[Tensor] | None


class InputDist:
    """The exchange of ids for one collection.

    Args:
        layout: The slots of all ranks.
        collectives: This rank's group.
        features: The collection's features, which errors are reported by.
        sources: Keys of the batches that arrive, in their order: the features, then those with normalised weights.
    """

    def __init__(
        self, layout: Layout, collectives: Collectives, features: tuple[FeatureTable, ...], sources: tuple[str, ...]
    ) -> None:
        self._layout = layout
        self._comms = collectives
        self._features = features
        self._capacity = 1  # never 0, so that no kernel meets a batch without bags
        self._position = {source: index for index, source in enumerate(sources)}
        first_split, pieces = {}, len(sources)
        for output, bounds in layout.row_bounds.items():
            first_split[output] = pieces
            pieces += len(bounds) - 1
        # Piece that each slot of each rank sends.
        self._pieces = [
            [
                self._position[layout.outputs[slot.output].source]
                if slot.split is None
                else first_split[slot.output] + slot.split
                for slot in layout.slots(rank)
            ]
            for rank in range(collectives.world_size)
        ]
        self._weighted_pieces = [
            [
                piece
                for piece, slot in zip(pieces_of_rank, layout.slots(rank), strict=True)
                if layout.outputs[slot.output].weighted
            ]
            for rank, pieces_of_rank in enumerate(self._pieces)
        ]
        wanted = [piece for pieces_of_rank in self._pieces for piece in pieces_of_rank]
        self._piece_index = torch.tensor(wanted, dtype=torch.int64)
        self._own_slots = len(layout.slots(collectives.rank))

    def __call__(self, sparse: SparseFeatures, error: InputError | None) -> LocalInput:
        """Exchange the ids of a checked batch.

        Raises:
            DataError: Any rank found a mistake in its batch; every rank raises.
        """
        parts = self._split(sparse)
        lengths, batch_sizes = self._exchange_lengths(parts.lengths, sparse.batch_size, error)
        counts = lengths.sum(dim=2).tolist()  # [W][S]
        values, work = self._post([[parts.values[p] for p in pieces] for pieces in self._pieces], counts, sparse.values)
        weights = None
        if any(output.weighted for output in self._layout.outputs):
            weights = self._exchange_weights(parts, counts, sparse)
        work.wait()
        return self._arrange(lengths, counts, values, weights, batch_sizes)

    def _split(self, sparse: SparseFeatures) -> _Parts:
        """Cut the batch into features, and the features of row-split tables into row ranges."""
        lengths = sparse.lengths_by_feature
        counts = lengths.sum(dim=1).tolist()
        values = list(sparse.values.split(counts))
        weights = None if sparse.weights is None else list(sparse.weights.split(counts))
        rows = [lengths]
        for output, bounds in self._layout.row_bounds.items():
            feature = self._position[self._layout.outputs[output].source]
            order, split_lengths, split_counts = _split_rows(values[feature], lengths[feature], bounds)
            rows.append(split_lengths)
            ordered = values[feature][order].split(split_counts)
            values += [part - begin for part, begin in zip(ordered, bounds, strict=False)]
            if weights is not None:
                weights += weights[feature][order].split(split_counts)
        return _Parts(torch.cat(rows) if len(rows) > 1 else lengths, values, weights)

    def _exchange_lengths(
        self, lengths: Tensor, batch_size: int, error: InputError | None
    ) -> tuple[Tensor, tuple[int, ...]]:
        """Return the lengths ``[W, S, C]`` of this rank's slots and the batch sizes of all ranks."""
        if self._piece_index.device != lengths.device:
            self._piece_index = self._piece_index.to(lengths.device)
        wanted = lengths.index_select(0, self._piece_index)
        while True:
            fits = batch_size <= self._capacity
            splits = [_HEADER + len(pieces) * self._capacity for pieces in self._pieces]
            message = lengths.new_zeros(sum(splits))
            header = message.new_tensor(_header(batch_size, error))
            first = 0
            for part, pieces in zip(message.split(splits), self._pieces, strict=True):
                part[:_HEADER] = header
                if fits and pieces:
                    block = part[_HEADER:].view(len(pieces), self._capacity)
                    block[:, :batch_size] = wanted[first : first + len(pieces)]
                first += len(pieces)
            size = _HEADER + self._own_slots * self._capacity
            received = message.new_empty(self._comms.world_size * size)
            self._comms.all_to_all(received, message, [size] * self._comms.world_size, splits).wait()
            table = received.view(self._comms.world_size, size)
            headers = table[:, :_HEADER].tolist()
            self._raise_errors(headers, error)
            batch_sizes = tuple(row[0] for row in headers)
            if max(batch_sizes) <= self._capacity:
                shape = (self._comms.world_size, self._own_slots, self._capacity)
                return table[:, _HEADER:].reshape(shape), batch_sizes
            self._capacity = max(batch_sizes)

    def _raise_errors(self, headers: list[list[int]], own: InputError | None) -> None:
        errors = {
            rank: InputError(ErrorKind(row[1]), row[2], row[3], row[4], row[5])
            for rank, row in enumerate(headers)
            if row[1] != ErrorKind.NONE
        }
        if errors:
            raise_input_errors(errors, self._comms.rank, own.message if own is not None else "", self._features)

    def _post(self, sends: list[list[Tensor]], counts: list[list[int]], like: Tensor) -> tuple[Tensor, Any]:
        """Post the exchange of pieces; returns the receiving tensor and the work under way."""
        flat = [part for parts in sends for part in parts]
        message = torch.cat(flat) if flat else like.new_empty(0)
        send_splits = [sum(part.numel() for part in parts) for parts in sends]
        receive_splits = [sum(row) for row in counts]
        received = like.new_empty(sum(receive_splits))
        return received, self._comms.all_to_all(received, message, receive_splits, send_splits)

    def _exchange_weights(self, parts: _Parts, counts: list[list[int]], sparse: SparseFeatures) -> Tensor:
        assert parts.weights is not None and sparse.weights is not None  # the input check saw to it
        sends = [[parts.weights[piece] for piece in pieces] for pieces in self._weighted_pieces]
        flat = [part for row in sends for part in row]
        message = torch.cat(flat) if flat else sparse.weights[:0]
        send_splits = [sum(part.numel() for part in row) for row in sends]
        receive_splits = [sum(count for count, is_weighted in self._own(row) if is_weighted) for row in counts]
        received: Tensor = _Exchange.apply(message, self._comms, receive_splits, send_splits)  # type: ignore[no-untyped-call]
        return received

    def _own(self, counts: list[int]) -> list[tuple[int, bool]]:
        slots = self._layout.slots(self._comms.rank)
        return [(count, self._layout.outputs[slot.output].weighted) for count, slot in zip(counts, slots, strict=True)]

    def _arrange(
        self,
        lengths: Tensor,
        counts: list[list[int]],
        values: Tensor,
        weights: Tensor | None,
        batch_sizes: tuple[int, ...],
    ) -> LocalInput:
        """Bring what arrived sender by sender into slot order, group by group."""
        by_slot = lengths.transpose(0, 1)  # [S, W, C]
        pieces = values.split([count for row in counts for count in row])
        weighted = [[count for count, is_weighted in self._own(row) if is_weighted] for row in counts]
        weight_pieces = None if weights is None else weights.split([count for row in weighted for count in row])
        groups, first, first_weighted = [], 0, 0
        for group in self._layout.groups[self._comms.rank]:
            last = first + len(group.slots)
            offsets = lengths.new_zeros((last - first) * lengths.shape[0] * lengths.shape[2] + 1)
            torch.cumsum(by_slot[first:last].reshape(-1), dim=0, out=offsets[1:])
            group_weights = None
            if group.weighted and weight_pieces is not None:
                until = first_weighted + len(group.slots)
                group_weights = _by_slot(weight_pieces, len(weighted[0]), first_weighted, until)
                first_weighted = until
            groups.append(GroupInput(_by_slot(pieces, self._own_slots, first, last), offsets, group_weights))
            first = last
        differentiable = weights if weights is not None and weights.requires_grad else None
        return LocalInput(tuple(groups), batch_sizes, self._capacity, differentiable)


def _by_slot(pieces: tuple[Tensor, ...], num_slots: int, first: int, last: int) -> Tensor:
    """Concatenate pieces ``[W][slot]`` of the slots ``[first, last)`` in the order slot, then sender."""
    senders = len(pieces) // num_slots
    if senders == 1 and first == 0 and last == num_slots == 1:
        return pieces[0]
    return torch.cat([pieces[sender * num_slots + slot] for slot in range(first, last) for sender in range(senders)])


def _split_rows(values: Tensor, lengths: Tensor, bounds: tuple[int, ...]) -> tuple[Tensor, Tensor, list[int]]:
    """Sort one feature's ids by row range, keeping their order within each.

    Returns:
        The order ``[n]``, the lengths ``[ranges, B]`` and the number of ids per range.
    """
    num_ranges, batch_size = len(bounds) - 1, lengths.numel()
    inner = values.new_tensor(bounds[1:-1])
    ranges = torch.bucketize(values, inner, right=True)
    samples = torch.repeat_interleave(lengths, output_size=values.numel())
    order = torch.argsort(ranges, stable=True)
    bags = torch.bincount(ranges * batch_size + samples, minlength=num_ranges * batch_size)
    split_lengths = bags.view(num_ranges, batch_size)
    return order, split_lengths, split_lengths.sum(dim=1).tolist()


def _header(batch_size: int, error: InputError | None) -> list[int]:
    found = error if error is not None else InputError(ErrorKind.NONE)
    return [batch_size, int(found.kind), found.feature, found.value, found.sample, found.position, 0, 0]


class _Exchange(torch.autograd.Function):
    """A differentiable all-to-all: the gradient travels back the way the values came."""

    @staticmethod
    def forward(ctx: Any, message: Tensor, comms: Collectives, receive: list[int], send: list[int]) -> Tensor:
        ctx.comms, ctx.receive, ctx.send = comms, receive, send
        received = message.new_empty(sum(receive))
        comms.all_to_all(received, message.contiguous(), receive, send).wait()
        return received

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        back = gradient.new_empty(sum(ctx.send))
        ctx.comms.all_to_all(back, gradient.contiguous(), ctx.send, ctx.receive).wait()
        # The pooled gradients are divided by the world size on their way; undo it for what leaves the engine here.
        return back * ctx.comms.world_size, None, None, None
