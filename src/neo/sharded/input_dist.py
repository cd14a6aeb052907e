"""input_dist: every rank's ids travel to the ranks that hold their rows, one lengths and one values exchange in all.

Shapes: W ranks, S slots of this rank, B_c bags of this rank in bag class c, C_c the capacity of the class (the most
bags of any rank so far), H the header. The lengths message to a rank is ``[H + sum over c of slots_c * C_c]``. The
header carries the sender's batch size, its bags per class and the error that it found, so that neither uneven batches
nor bad ids need a collective of their own; bags over a capacity repeat the exchange once, with larger capacities, on
all ranks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from neo.comms.collectives import Collectives
from neo.errors import UnsupportedError
from neo.sharded.input_check import ErrorKind, FeatureTable, InputError, raise_input_errors
from neo.sharded.layout import Layout, Slot, Source
from neo.sharded.row_deal import RowDeal
from neo.sharded.sources import SourcePlace, Sources

_HEADER = 8  # batch size, error kind, feature, value, sample, position, two flags; the bag counts follow
_HAS_BACKWARD, _WANTS_WEIGHTS = 6, 7  # a rank runs the forward with gradients, and its weights want theirs
# Bags of a variable class grow by this part more than asked, so that the exchange is seldom repeated.
_SLACK = 8


@dataclass(frozen=True)
class GroupInput:
    """What one lookup group reads: ids ``[N]``, offsets ``[slots * W * C + 1]``, weights ``[N]`` or None.

    ``capacity`` is C, the largest of the group's bag classes: each rank's bags occupy C places per slot, the surplus
    ones empty.
    """

    values: Tensor
    offsets: Tensor
    weights: Tensor | None
    capacity: int


@dataclass(frozen=True)
class LocalInput:
    """All ids that this rank looks up.

    Attributes:
        groups: One per lookup group of the layout.
        batch_sizes: ``[W]`` samples of each rank.
        bag_counts: ``[W][classes]`` bags of each rank.
        received_weights: The weights as received, if they take part in the backward.
    """

    groups: tuple[GroupInput, ...]
    batch_sizes: tuple[int, ...]
    bag_counts: tuple[tuple[int, ...], ...]
    received_weights: Tensor | None


@dataclass(frozen=True)
class _Pieces:
    """What slots send, indexed alike: sources first, then the parts of row splits."""

    lengths: list[Tensor]  # per bag class [rows, B_c]
    values: list[Tensor]
    weights: list[Tensor | None]


@dataclass(frozen=True)
class _Piece:
    """Where one piece stands: its index, and the class and row of its lengths."""

    index: int
    bag_class: int
    row: int


class InputDist:
    """The exchange of ids for one collection.

    Args:
        layout: The slots of all ranks.
        collectives: This rank's group.
        features: The collection's features, which errors are reported by.
        places: Where the lengths of each source stand.
    """

    def __init__(
        self,
        layout: Layout,
        collectives: Collectives,
        features: tuple[FeatureTable, ...],
        places: Mapping[Source, SourcePlace],
    ) -> None:
        self._layout = layout
        self._comms = collectives
        self._features = features
        self._places = places
        self._is_fixed = [bag_class.source is None for bag_class in layout.bag_classes]
        self._capacities = [1] * len(layout.bag_classes)  # never 0, so that no kernel meets a batch without bags
        self._deals: dict[int, tuple[RowDeal, list[SourcePlace]]] = {}
        split_pieces = self._split_pieces()
        # Piece that each slot of each rank sends.
        self._pieces = [
            [self._piece(slot, split_pieces) for slot in layout.slots(rank)] for rank in range(collectives.world_size)
        ]
        weighted = [
            [layout.outputs[slot.output].weighted for slot in layout.slots(r)] for r in range(len(self._pieces))
        ]
        self._weighted_pieces = [
            [piece.index for piece, is_weighted in zip(pieces, flags, strict=True) if is_weighted]
            for pieces, flags in zip(self._pieces, weighted, strict=True)
        ]
        classes = range(len(layout.bag_classes))
        self._slots_in_class = [[sum(p.bag_class == c for p in pieces) for c in classes] for pieces in self._pieces]
        # Rows of the lengths that travel, per class: rank by rank, slot by slot.
        self._wanted = [
            torch.tensor([p.row for pieces in self._pieces for p in pieces if p.bag_class == c], dtype=torch.int64)
            for c in classes
        ]
        self._own = self._pieces[collectives.rank]
        self._own_weighted = weighted[collectives.rank]
        order = [slot for c in classes for slot, piece in enumerate(self._own) if piece.bag_class == c]
        self._place_in_order = [order.index(slot) for slot in range(len(self._own))]  # slots, class by class

    def __call__(self, sources: Sources, error: InputError | None) -> LocalInput:
        """Exchange the ids of a checked batch.

        Raises:
            DataError: Any rank found a mistake in its batch; every rank raises.
        """
        pieces = self._split(sources)
        lengths, headers = self._exchange_lengths(pieces.lengths, sources, error)
        by_class = torch.cat([block.sum(dim=2) for block in lengths], dim=1).tolist()  # [W][S], class by class
        counts = [[row[place] for place in self._place_in_order] for row in by_class]
        wanted = [[pieces.values[piece.index] for piece in of_rank] for of_rank in self._pieces]
        values, work = self._post(wanted, counts, sources.values[0])
        weights = None
        if any(output.weighted for output in self._layout.outputs):
            weights = self._exchange_weights(pieces, counts, any(row[_WANTS_WEIGHTS] for row in headers))
        work.wait()
        groups = self._arrange(lengths, counts, values, weights)
        differentiable = weights if weights is not None and weights.requires_grad else None
        bag_counts = tuple(tuple(row[_HEADER:]) for row in headers)
        return LocalInput(groups, tuple(row[0] for row in headers), bag_counts, differentiable)

    def _split_pieces(self) -> dict[int, list[_Piece]]:
        """Return the pieces of each row split in row order; their lengths follow those of their class's sources."""
        index = len(self._places)
        pieces: dict[int, list[_Piece]] = {}
        for bag_class in range(len(self._is_fixed)):
            row = sum(place.bag_class == bag_class for place in self._places.values())
            splits = [
                (position, split)
                for position, split in enumerate(self._layout.row_splits)
                if self._places[split.source].bag_class == bag_class
            ]
            for position, split in splits:
                num_parts = len(split.bounds) - 1
                pieces[position] = [_Piece(index + part, bag_class, row + part) for part in range(num_parts)]
                index, row = index + num_parts, row + num_parts
            if splits:
                own = [split for _, split in splits]
                self._deals[bag_class] = (RowDeal(own), [self._places[split.source] for split in own])
        return pieces

    def _piece(self, slot: Slot, split_pieces: Mapping[int, Sequence[_Piece]]) -> _Piece:
        if slot.row_part is not None:
            return split_pieces[slot.row_part[0]][slot.row_part[1]]
        place = self._places[self._layout.outputs[slot.output].source]
        return _Piece(place.index, place.bag_class, place.row)

    def _split(self, sources: Sources) -> _Pieces:
        """Deal the ids of every row split out to its parts."""
        values, weights = list(sources.values), list(sources.weights)
        lengths = list(sources.lengths)
        for bag_class, (deal, places) in self._deals.items():
            rows = sources.lengths[bag_class][[place.row for place in places]]
            indices = [place.index for place in places]
            dealt = deal([values[i] for i in indices], rows, [weights[i] for i in indices])
            lengths[bag_class] = torch.cat([sources.lengths[bag_class], dealt.lengths])
            values += dealt.values
            weights += dealt.weights
        return _Pieces(lengths, values, weights)

    def _exchange_lengths(
        self, lengths: Sequence[Tensor], sources: Sources, error: InputError | None
    ) -> tuple[list[Tensor], list[list[int]]]:
        """Return the lengths ``[W, slots, C_c]`` of this rank's slots by bag class, and the headers of all ranks."""
        device = lengths[0].device
        if self._wanted[0].device != device:
            self._wanted = [rows.to(device) for rows in self._wanted]
        wanted = [block.index_select(0, rows) for block, rows in zip(lengths, self._wanted, strict=True)]
        header = torch.tensor(_header(sources, error), device=device)
        while True:
            splits = [self._message_size(rank) for rank in range(self._comms.world_size)]
            message = torch.zeros(sum(splits), dtype=torch.int64, device=device)
            self._write(message.split(splits), header, wanted, sources.bag_counts)
            size = splits[self._comms.rank]
            received = message.new_empty(self._comms.world_size * size)
            self._comms.all_to_all(received, message, [size] * self._comms.world_size, splits).wait()
            table = received.view(self._comms.world_size, size)
            headers: list[list[int]] = table[:, : header.numel()].tolist()
            self._raise_errors(headers, error)
            _require_one_mode(headers)
            if self._grow([max(row[_HEADER + c] for row in headers) for c in range(len(self._capacities))]):
                continue
            own = self._slots_in_class[self._comms.rank]
            blocks = table[:, header.numel() :].split(
                [n * c for n, c in zip(own, self._capacities, strict=True)], dim=1
            )
            shapes = zip(blocks, own, self._capacities, strict=True)
            return [
                block.reshape(self._comms.world_size, slots, capacity) for block, slots, capacity in shapes
            ], headers

    def _message_size(self, rank: int) -> int:
        slots = self._slots_in_class[rank]
        return _HEADER + len(slots) + sum(n * c for n, c in zip(slots, self._capacities, strict=True))

    def _write(
        self, parts: Sequence[Tensor], header: Tensor, wanted: Sequence[Tensor], bag_counts: Sequence[int]
    ) -> None:
        """Write the message to each rank: the header, then the lengths of its slots class by class."""
        fits = all(bags <= capacity for bags, capacity in zip(bag_counts, self._capacities, strict=True))
        first = [0] * len(wanted)
        for part, slots in zip(parts, self._slots_in_class, strict=True):
            part[: header.numel()] = header
            position = header.numel()
            for c, (num_slots, capacity) in enumerate(zip(slots, self._capacities, strict=True)):
                if fits and num_slots:
                    block = part[position : position + num_slots * capacity].view(num_slots, capacity)
                    block[:, : bag_counts[c]] = wanted[c][first[c] : first[c] + num_slots]
                position += num_slots * capacity
                first[c] += num_slots

    def _grow(self, needed: Sequence[int]) -> bool:
        """Raise the capacities to what some rank needs; returns whether that was necessary."""
        grown = False
        for c, bags in enumerate(needed):
            if bags > self._capacities[c]:
                self._capacities[c] = bags if self._is_fixed[c] else bags + bags // _SLACK
                grown = True
        return grown

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

    def _exchange_weights(self, pieces: _Pieces, counts: list[list[int]], wanted: bool) -> Tensor:
        """Exchange the weights; if any rank wants gradients, their way back is an exchange that all ranks take."""
        sends = [[pieces.weights[piece] for piece in of_rank] for of_rank in self._weighted_pieces]
        flat = [part for row in sends for part in row if part is not None]
        given = [part for part in pieces.weights if part is not None]
        message = torch.cat(flat) if flat else given[0][:0]
        if wanted and not message.requires_grad:
            message = message.detach().requires_grad_()
        send_splits = [sum(part.numel() for part in row if part is not None) for row in sends]
        receive_splits = [sum(self._only_weighted(row)) for row in counts]
        received: Tensor = _Exchange.apply(message, self._comms, receive_splits, send_splits)  # type: ignore[no-untyped-call]
        return received

    def _only_weighted(self, counts: list[int]) -> list[int]:
        return [count for count, is_weighted in zip(counts, self._own_weighted, strict=True) if is_weighted]

    def _arrange(
        self, lengths: Sequence[Tensor], counts: list[list[int]], values: Tensor, weights: Tensor | None
    ) -> tuple[GroupInput, ...]:
        """Bring what arrived sender by sender into slot order, group by group."""
        by_slot = [block.transpose(0, 1) for block in lengths]  # [slots, W, C_c]
        pieces = values.split([count for row in counts for count in row])
        weighted = [self._only_weighted(row) for row in counts]
        weight_pieces = None if weights is None else weights.split([count for row in weighted for count in row])
        groups, first, first_weighted = [], 0, 0
        in_class = [0] * len(lengths)
        for group in self._layout.groups[self._comms.rank]:
            last = first + len(group.slots)
            bags = _bags(by_slot, in_class, [piece.bag_class for piece in self._own[first:last]])
            offsets = bags.new_zeros(bags.numel() + 1)
            torch.cumsum(bags.reshape(-1), dim=0, out=offsets[1:])
            group_weights = None
            if group.weighted and weight_pieces is not None:
                until = first_weighted + len(group.slots)
                group_weights = _by_slot(weight_pieces, len(weighted[0]), first_weighted, until)
                first_weighted = until
            group_values = _by_slot(pieces, len(self._own), first, last)
            groups.append(GroupInput(group_values, offsets, group_weights, bags.shape[2]))
            first = last
        return tuple(groups)


def _bags(by_slot: Sequence[Tensor], first: list[int], classes: Sequence[int]) -> Tensor:
    """Return the lengths ``[slots, W, C]`` of a group's slots, moving ``first`` on; C is that of its largest class."""
    if len(set(classes)) == 1:
        only = classes[0]
        first[only] += len(classes)
        return by_slot[only][first[only] - len(classes) : first[only]]
    capacity = max(by_slot[c].shape[2] for c in classes)
    bags = by_slot[0].new_zeros(len(classes), by_slot[0].shape[1], capacity)
    for slot, c in enumerate(classes):
        bags[slot, :, : by_slot[c].shape[2]] = by_slot[c][first[c]]
        first[c] += 1
    return bags


def _by_slot(pieces: tuple[Tensor, ...], num_slots: int, first: int, last: int) -> Tensor:
    """Concatenate pieces ``[W][slot]`` of the slots ``[first, last)`` in the order slot, then sender."""
    senders = len(pieces) // num_slots
    if senders == 1 and first == 0 and last == num_slots == 1:
        return pieces[0]
    return torch.cat([pieces[sender * num_slots + slot] for slot in range(first, last) for sender in range(senders)])


def _header(sources: Sources, error: InputError | None) -> list[int]:
    found = error if error is not None else InputError(ErrorKind.NONE)
    has_backward = torch.is_grad_enabled()
    wants = has_backward and any(part is not None and part.requires_grad for part in sources.weights)
    mistake = [int(found.kind), found.feature, found.value, found.sample, found.position]
    return [sources.batch_size, *mistake, int(has_backward), int(wants), *sources.bag_counts]


def _require_one_mode(headers: Sequence[Sequence[int]]) -> None:
    """Refuse a forward of which only some ranks will run the backward, which would wait for the others for ever."""
    without = [rank for rank, row in enumerate(headers) if not row[_HAS_BACKWARD]]
    if without and len(without) < len(headers):
        raise UnsupportedError(
            f"ranks {without} of {len(headers)} run this forward of the EmbeddingBagCollection without gradients "
            f"(torch.no_grad or inference mode) and the others with them; every rank must do the same"
        )


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
