"""One hop of pooled vectors: an all-to-all, and the assembly of what arrives.

The flat exchange is one hop. The hierarchical one is two: inside the node to the rank that relays for the destination,
which adds partial sums of row shards, then between nodes. The backward of a hop sends gradients the same way back.

Shapes: for a rank, a *run* is a matrix ``[rows, columns]`` of vectors with equally many bags; its rows are the bags of
one or more final ranks, one after the other, D_c the columns of bag class c after the hop.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neo.comms.codecs import Codec
from neo.comms.collectives import Collectives, Work


@dataclass(frozen=True)
class Run:
    """Vectors of one bag class side by side: the unit that a codec encodes."""

    bag_class: int
    widths: tuple[int, ...]

    @property
    def columns(self) -> int:
        """Columns of all vectors."""
        return sum(self.widths)


@dataclass(frozen=True)
class Move:
    """Columns of one sender's run that belong to columns of a bag class.

    Attributes:
        sender: The rank that sends them.
        run: Index of the run among the sender's.
        source: First column in the run.
        width: Number of columns.
        bag_class: Where they go.
        target: First column there.
        adds: Whether they are a further part of columns that an earlier move has set.
    """

    sender: int
    run: int
    source: int
    width: int
    bag_class: int
    target: int
    adds: bool


@dataclass(frozen=True)
class Route:
    """What one rank sends and receives in a hop.

    Attributes:
        runs: Of every rank that sends to this one, and of this rank itself.
        destinations: Ranks that this rank sends to, ascending, each with the final ranks whose rows it gets.
        senders: Ranks that send to this one, ascending.
        rows: Final ranks whose rows this rank holds after the hop.
        moves: How what arrives is assembled.
        widths: D_c of each bag class after the hop.
    """

    runs: Mapping[int, tuple[Run, ...]]
    destinations: Mapping[int, tuple[int, ...]]
    senders: tuple[int, ...]
    rows: tuple[int, ...]
    moves: tuple[Move, ...]
    widths: tuple[int, ...]


@dataclass(frozen=True)
class SentRows:
    """Where the rows of each final rank stand in the runs of a sender.

    Attributes:
        begins: Per run: first row of each final rank that is sent to.
        num_rows: Per run: rows of the whole matrix.
    """

    begins: tuple[Mapping[int, int], ...]
    num_rows: tuple[int, ...]


@dataclass(frozen=True)
class Posted:
    """An exchange under way; what it reads and writes must live until it is done."""

    wire: Tensor
    work: Work
    kept: Tensor


BagCounts = Sequence[Sequence[int]]  # [W][classes]


class Hop:
    """One rank's side of a hop.

    Args:
        collectives: The group.
        route: What is sent where.
    """

    def __init__(self, collectives: Collectives, route: Route) -> None:
        self.route = route
        self._comms = collectives
        self._own_runs = route.runs[collectives.rank]
        self._moves_of: dict[tuple[int, int], list[Move]] = {}
        for move in route.moves:
            self._moves_of.setdefault((move.sender, move.run), []).append(move)

    def send(self, runs: Sequence[Tensor], rows: SentRows, bags: BagCounts, codec: Codec, scale: float = 1.0) -> Posted:
        """Post the exchange of this rank's runs."""
        wires = [codec.encode(run, own.widths, scale=scale) for run, own in zip(runs, self._own_runs, strict=True)]
        parts: list[Tensor] = []
        splits = [0] * self._comms.world_size
        for target, finals in self.route.destinations.items():
            for wire, own, begins in zip(wires, self._own_runs, rows.begins, strict=True):
                for final in finals:
                    count = bags[final][own.bag_class]
                    parts.append(wire[begins[final] : begins[final] + count])
                    splits[target] += count * wire.shape[1]
        message = self._join(parts, codec, runs)
        receive = [0] * self._comms.world_size
        for sender in self.route.senders:
            receive[sender] = sum(self._received_size(run, bags, codec) for run in self.route.runs[sender])
        wire = message.new_empty(sum(receive))
        return Posted(wire, self._comms.all_to_all(wire, message, receive, splits), message)

    def receive(self, posted: Posted, bags: BagCounts, codec: Codec, scale: float = 1.0) -> list[Tensor]:
        """Await the exchange and return the rows ``[rows, D_c]`` of each bag class."""
        posted.work.wait()
        counts = self._row_counts(bags)
        device = posted.wire.device
        result = [torch.empty(n, width, device=device) for n, width in zip(counts, self.route.widths, strict=True)]
        blocks = self._blocks(posted.wire, counts, codec, scale)
        for move in self.route.moves:
            source = blocks[move.sender, move.run][:, move.source : move.source + move.width]
            target = result[move.bag_class][:, move.target : move.target + move.width]
            if move.adds:
                target.add_(source)
            else:
                target.copy_(source)
        return result

    def send_back(
        self, gradients: Sequence[Tensor], bags: BagCounts, codec: Codec, scale: float = 1.0, divisor: float = 1.0
    ) -> Posted:
        """Post the exchange of the gradients ``[rows, D_c]`` of what ``receive`` returned, divided by ``divisor``."""
        counts = self._row_counts(bags)
        columns = [run.columns * counts[run.bag_class] for s in self.route.senders for run in self.route.runs[s]]
        flat = torch.empty(sum(columns), device=self._device(gradients))
        wires = []
        splits = [0] * self._comms.world_size
        parts = iter(flat.split(columns))
        for sender in self.route.senders:
            for index, run in enumerate(self.route.runs[sender]):
                block = next(parts).view(counts[run.bag_class], run.columns)
                for move in self._moves_of.get((sender, index), ()):
                    source = gradients[move.bag_class][:, move.target : move.target + move.width]
                    target = block[:, move.source : move.source + move.width]
                    if divisor == 1.0:
                        target.copy_(source)
                    else:
                        torch.div(source, divisor, out=target)
                wires.append(codec.encode(block, run.widths, scale=scale))
                splits[sender] += wires[-1].numel()
        # A codec that returns its input leaves the blocks where they are: one after the other already.
        is_plain = all(
            wire.data_ptr() == part.data_ptr() for wire, part in zip(wires, flat.split(columns), strict=True)
        )
        message = flat if is_plain and codec.dtype is flat.dtype else self._join(wires, codec, gradients)
        receive = [0] * self._comms.world_size
        for target_rank, finals in self.route.destinations.items():
            for run in self._own_runs:
                size = sum(bags[final][run.bag_class] for final in finals)
                receive[target_rank] += size * codec.wire_columns(run.widths)
        wire = message.new_empty(sum(receive))
        return Posted(wire, self._comms.all_to_all(wire, message, receive, splits), message)

    def receive_back(
        self, posted: Posted, rows: SentRows, bags: BagCounts, codec: Codec, scale: float = 1.0
    ) -> list[Tensor]:
        """Await the exchange and return the gradient of each of this rank's runs; rows that were not sent get 0."""
        posted.work.wait()
        runs = self._own_runs
        sizes = [
            sum(bags[final][run.bag_class] for final in finals) * codec.wire_columns(run.widths)
            for finals in self.route.destinations.values()
            for run in runs
        ]
        parts = iter(posted.wire.split(sizes))
        blocks: list[list[Tensor]] = [[] for _ in runs]
        for _ in self.route.destinations:
            for index, run in enumerate(runs):
                wire = next(parts).view(-1, codec.wire_columns(run.widths))
                blocks[index].append(codec.decode(wire, run.widths, scale=scale))
        if len(runs) == 1 and self._is_dense(runs[0], rows, bags):
            # What arrives is the run's gradient already: all of it, in order.
            width = codec.wire_columns(runs[0].widths)
            return [codec.decode(posted.wire.view(-1, width), runs[0].widths, scale=scale)]
        places = zip(runs, blocks, rows.begins, rows.num_rows, strict=True)
        return [self._scatter(run, found, begins, num_rows, bags) for run, found, begins, num_rows in places]

    def _scatter(
        self, run: Run, blocks: Sequence[Tensor], begins: Mapping[int, int], num_rows: int, bags: BagCounts
    ) -> Tensor:
        gradient = blocks[0].new_zeros(num_rows, run.columns) if blocks else torch.zeros(num_rows, run.columns)
        for finals, block in zip(self.route.destinations.values(), blocks, strict=True):
            first = 0
            for final in finals:
                count = bags[final][run.bag_class]
                gradient[begins[final] : begins[final] + count] = block[first : first + count]
                first += count
        return gradient

    def _is_dense(self, run: Run, rows: SentRows, bags: BagCounts) -> bool:
        """Return whether the rows that were sent are all rows of the run, in order."""
        reached = 0
        for finals in self.route.destinations.values():
            for final in finals:
                if rows.begins[0][final] != reached:
                    return False
                reached += bags[final][run.bag_class]
        return reached == rows.num_rows[0]

    def _row_counts(self, bags: BagCounts) -> list[int]:
        """Return the rows of each bag class after the hop."""
        return [sum(bags[final][c] for final in self.route.rows) for c in range(len(self.route.widths))]

    def _received_size(self, run: Run, bags: BagCounts, codec: Codec) -> int:
        return sum(bags[final][run.bag_class] for final in self.route.rows) * codec.wire_columns(run.widths)

    def _blocks(self, wire: Tensor, counts: Sequence[int], codec: Codec, scale: float) -> dict[tuple[int, int], Tensor]:
        """Return the decoded runs ``[rows, columns]`` of every sender."""
        places = [(s, index, run) for s in self.route.senders for index, run in enumerate(self.route.runs[s])]
        sizes = [counts[run.bag_class] * codec.wire_columns(run.widths) for _, _, run in places]
        blocks = {}
        for (sender, index, run), part in zip(places, wire.split(sizes), strict=True):
            rows = part.view(counts[run.bag_class], codec.wire_columns(run.widths))
            blocks[sender, index] = codec.decode(rows, run.widths, scale=scale)
        return blocks

    def _join(self, parts: Sequence[Tensor], codec: Codec, like: Sequence[Tensor]) -> Tensor:
        filled = [part for part in parts if part.numel()]
        if not filled:
            return torch.empty(0, dtype=codec.dtype, device=self._device(like))
        if len(filled) == 1:
            return filled[0].reshape(-1)
        return torch.cat([part.reshape(-1) for part in filled])

    def _device(self, like: Sequence[Tensor]) -> torch.device:
        return like[0].device if like else torch.device("cpu")
