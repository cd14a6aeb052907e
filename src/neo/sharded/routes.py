"""The hops of pooled vectors, derived from the layout: flat over all ranks, or by way of relays in each node."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from neo.comms.spec import ExchangeMode, is_hierarchical
from neo.hardware.topology import node_of, ranks_of_node, relay_of
from neo.sharded.hops import Move, Route, Run
from neo.sharded.layout import Layout, Slot


@dataclass(frozen=True)
class PooledRun:
    """Which columns of which lookup group's result a run of the first hop is.

    Attributes:
        group: Index of the rank's group.
        begin: First column in its result.
        run: The vectors.
        slots: What they are, in order.
    """

    group: int
    begin: int
    run: Run
    slots: tuple[Slot, ...]


def pooled_runs(layout: Layout, rank: int) -> tuple[PooledRun, ...]:
    """Return the runs that a rank's lookups give: neighbouring slots of one group and bag class."""
    runs = []
    for index, group in enumerate(layout.groups[rank]):
        column = 0
        for bag_class, neighbours in groupby(group.slots, key=lambda slot: layout.outputs[slot.output].bag_class):
            slots = tuple(neighbours)
            run = Run(bag_class, tuple(slot.shard.num_columns for slot in slots))
            runs.append(PooledRun(index, column, run, slots))
            column += run.columns
    return tuple(runs)


def make_routes(layout: Layout, rank: int, world_size: int, mode: ExchangeMode) -> tuple[Route, ...]:
    """Return the one or two hops by which pooled vectors reach the ranks whose samples they belong to."""
    if is_hierarchical(mode, world_size, layout.local_world_size):
        nodes = _Nodes(world_size, layout.local_world_size)
        return _to_relays(layout, rank, nodes), _between_nodes(layout, rank, nodes)
    return (_flat(layout, rank, world_size),)


def _flat(layout: Layout, rank: int, world_size: int) -> Route:
    everyone = range(world_size)
    runs = {sender: pooled_runs(layout, sender) for sender in everyone}
    found = [(s, i, c, slot) for s in everyone for i, pooled in enumerate(runs[s]) for c, slot in _columns(pooled)]
    senders = tuple(sender for sender in everyone if runs[sender])
    return Route(
        runs={sender: tuple(pooled.run for pooled in runs[sender]) for sender in {*senders, rank}},
        destinations={target: (target,) for target in everyone} if runs[rank] else {},
        senders=senders,
        rows=(rank,),
        moves=_moves(layout, found, lambda slot: _column_of(layout, slot)),
        widths=tuple(bag_class.width for bag_class in layout.bag_classes),
    )


@dataclass(frozen=True)
class _Nodes:
    """Ranks by node, and who relays: each final rank's peer in a node, so that every rank uses its own NIC."""

    world_size: int
    local_world_size: int

    @property
    def count(self) -> int:
        return -(-self.world_size // self.local_world_size)

    def of(self, rank: int) -> int:
        return node_of(rank, self.local_world_size)

    def ranks(self, node: int) -> range:
        return ranks_of_node(node, self.world_size, self.local_world_size)

    def relay(self, node: int, final: int) -> int:
        return relay_of(node, final, self.world_size, self.local_world_size)

    def relayed_by(self, relay: int) -> tuple[int, ...]:
        node = self.of(relay)
        return tuple(final for final in range(self.world_size) if self.relay(node, final) == relay)


@dataclass(frozen=True)
class _NodeColumns:
    """What a node sends for each bag: one vector for each (output, columns), row shards already added.

    Attributes:
        runs: One per bag class that the node contributes to.
        place: (output, first column, last column) -> index of the run, first column in it.
    """

    runs: tuple[Run, ...]
    place: dict[tuple[int, int, int], tuple[int, int]]


def _node_columns(layout: Layout, node: int, nodes: _Nodes) -> _NodeColumns:
    keys = sorted({_part(slot) for rank in nodes.ranks(node) for slot in layout.slots(rank)})
    classes = sorted({layout.outputs[key[0]].bag_class for key in keys})
    widths: list[list[int]] = [[] for _ in classes]
    place = {}
    for output, begin, end in keys:
        run = classes.index(layout.outputs[output].bag_class)
        place[output, begin, end] = (run, sum(widths[run]))
        widths[run].append(end - begin)
    return _NodeColumns(tuple(Run(c, tuple(w)) for c, w in zip(classes, widths, strict=True)), place)


def _to_relays(layout: Layout, rank: int, nodes: _Nodes) -> Route:
    """Inside the node: what each rank looked up goes to the relays, which add the row shards of the node."""
    peers = nodes.ranks(nodes.of(rank))
    runs = {sender: pooled_runs(layout, sender) for sender in peers}
    found = [(s, i, c, slot) for s in peers for i, pooled in enumerate(runs[s]) for c, slot in _columns(pooled)]
    columns = _node_columns(layout, nodes.of(rank), nodes)
    widths = [0] * len(layout.bag_classes)
    for run in columns.runs:
        widths[run.bag_class] = run.columns
    senders = tuple(sender for sender in peers if runs[sender])
    return Route(
        runs={sender: tuple(pooled.run for pooled in runs[sender]) for sender in {*senders, rank}},
        destinations={peer: nodes.relayed_by(peer) for peer in peers} if runs[rank] else {},
        senders=senders,
        rows=nodes.relayed_by(rank),
        moves=_moves(layout, found, lambda slot: columns.place[_part(slot)][1]),
        widths=tuple(widths),
    )


def _between_nodes(layout: Layout, rank: int, nodes: _Nodes) -> Route:
    """Between nodes: relays send to the final ranks; partial sums of different nodes are added there."""
    by_node = [_node_columns(layout, node, nodes) for node in range(nodes.count)]
    relays = {nodes.relay(node, rank): by_node[node] for node in range(nodes.count) if by_node[node].runs}
    parts: list[tuple[tuple[int, int, int], int, int, int]] = []
    for sender in sorted(relays):
        for key, (run, column) in relays[sender].place.items():
            parts.append((key, sender, run, column))
    moves, seen = [], set()
    for (output, begin, end), sender, run, column in sorted(parts):
        target = layout.outputs[output]
        adds = (output, begin, end) in seen
        seen.add((output, begin, end))
        moves.append(Move(sender, run, column, end - begin, target.bag_class, target.column + begin, adds))
    own = by_node[nodes.of(rank)].runs
    return Route(
        runs={**{sender: found.runs for sender, found in relays.items()}, rank: own},
        destinations={final: (final,) for final in nodes.relayed_by(rank)} if own else {},
        senders=tuple(sorted(relays)),
        rows=(rank,),
        moves=tuple(moves),
        widths=tuple(bag_class.width for bag_class in layout.bag_classes),
    )


def _columns(pooled: PooledRun) -> list[tuple[int, Slot]]:
    """Return each slot of a run with its first column there."""
    return list(zip(accumulate(pooled.run.widths, initial=0), pooled.slots, strict=False))


def _part(slot: Slot) -> tuple[int, int, int]:
    return slot.output, slot.shard.column_begin, slot.shard.column_end


def _column_of(layout: Layout, slot: Slot) -> int:
    return layout.outputs[slot.output].column + slot.shard.column_begin


def _moves(
    layout: Layout, found: Sequence[tuple[int, int, int, Slot]], target: Callable[[Slot], int]
) -> tuple[Move, ...]:
    """Return the moves of (sender, run, column, slot), so ordered that row shards are added in row order."""
    ordered = sorted(found, key=lambda entry: (*_part(entry[3]), entry[3].shard.row_begin))
    moves, seen = [], set()
    for sender, run, column, slot in ordered:
        bag_class = layout.outputs[slot.output].bag_class
        adds = _part(slot) in seen
        seen.add(_part(slot))
        moves.append(Move(sender, run, column, slot.shard.num_columns, bag_class, target(slot), adds))
    return tuple(moves)
