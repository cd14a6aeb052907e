"""Who looks up what: the slots of every rank, derived from the plan alone and equal on all ranks.

A *slot* is one feature reading one shard on one rank; an *output* is one feature reading one table, the unit that
the model sees. Slots of a rank are ordered by lookup group, then output, then shard, so that each group's ids are
one contiguous run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neo.plan.sharding_plan import Shard, ShardingPlan, ShardingType
from neo.tables.spec import Pooling, TableSpec


@dataclass(frozen=True)
class Output:
    """One pooled output: columns ``[column, column + dim)`` of the result."""

    table: int
    feature: str
    dim: int
    column: int
    is_mean: bool
    weighted: bool
    data_parallel: bool

    @property
    def source(self) -> str:
        """Key of the ids and weights that it reads; a weighted mean reads the feature with normalised weights."""
        return normalised(self.feature) if self.is_mean and self.weighted else self.feature


def normalised(feature: str) -> str:
    """Return the key under which a feature stands with weights that add up to 1 in each bag."""
    return f"{feature}#normalised"


@dataclass(frozen=True)
class Slot:
    """One feature reading one shard.

    Attributes:
        rank: Who looks it up.
        output: Index of the output that it contributes to.
        shard: The part of the table; never empty.
        local_table: Index of the shard among the rank's local tables of its group.
        column: First column in the rank's message.
        split: Which row shard of its table it is, in row order, or None if the rows are not split.
    """

    rank: int
    output: int
    shard: Shard
    local_table: int
    column: int
    split: int | None


@dataclass(frozen=True)
class LocalShard:
    """A shard that a rank holds, and the table it is a part of."""

    table: int
    shard: Shard


@dataclass(frozen=True)
class GroupLayout:
    """The slots of one rank that are looked up together."""

    kernel: str
    weighted: bool
    local_shards: tuple[LocalShard, ...]
    slots: tuple[Slot, ...]


@dataclass(frozen=True)
class Layout:
    """Everything that the plan decides, in the order in which it travels.

    Attributes:
        tables: The collection's tables.
        outputs: In declared order.
        groups: Per rank, its lookup groups; unweighted groups come first.
        row_bounds: Per output whose table is split by rows: where each row shard begins, then the table's end.
        output_dim: Width of the result.
    """

    tables: tuple[TableSpec, ...]
    outputs: tuple[Output, ...]
    groups: tuple[tuple[GroupLayout, ...], ...]
    row_bounds: Mapping[int, tuple[int, ...]]
    output_dim: int

    def slots(self, rank: int) -> tuple[Slot, ...]:
        """Return the slots of a rank in message order."""
        return tuple(slot for group in self.groups[rank] for slot in group.slots)

    def message_dim(self, rank: int) -> int:
        """Return the columns of the pooled rows that a rank sends for each sample."""
        return sum(slot.shard.num_columns for slot in self.slots(rank))


def make_layout(tables: Sequence[TableSpec], plan: ShardingPlan, keys: Mapping[str, str]) -> Layout:
    """Derive the layout of a collection from a plan that was checked before.

    Args:
        tables: The collection's tables in declared order.
        plan: The placement of (at least) these tables.
        keys: Plan key of each table name.
    """
    outputs: list[Output] = []
    row_bounds: dict[int, tuple[int, ...]] = {}
    column = 0
    placed: list[dict[tuple[bool, str], list[tuple[int, Shard, list[int], int | None]]]] = [
        {} for _ in range(plan.world_size)
    ]
    for index, table in enumerate(tables):
        placement = plan.tables[keys[table.name]]
        replicated = placement.sharding_type is ShardingType.DATA_PARALLEL
        indices = []
        for feature in table.feature_names:
            indices.append(len(outputs))
            is_mean = table.pooling is Pooling.MEAN
            outputs.append(Output(index, feature, table.embedding_dim, column, is_mean, table.weighted, replicated))
            column += table.embedding_dim
        if replicated:
            continue
        shards = [shard for shard in placement.shards if shard.num_rows and shard.num_columns]
        begins = sorted({shard.row_begin for shard in shards})
        if len(begins) > 1:
            row_bounds.update(dict.fromkeys(indices, (*begins, table.num_embeddings)))
        for shard in shards:
            split = begins.index(shard.row_begin) if len(begins) > 1 else None
            key = (table.weighted, placement.kernel)
            placed[shard.rank].setdefault(key, []).append((index, shard, indices, split))
    groups = tuple(_rank_groups(rank, placed[rank]) for rank in range(plan.world_size))
    return Layout(tuple(tables), tuple(outputs), groups, row_bounds, column)


def _rank_groups(
    rank: int, placed: Mapping[tuple[bool, str], list[tuple[int, Shard, list[int], int | None]]]
) -> tuple[GroupLayout, ...]:
    groups = []
    column = 0
    for weighted, kernel in sorted(placed):
        local_shards: list[LocalShard] = []
        slots: list[Slot] = []
        for table, shard, outputs, split in placed[weighted, kernel]:
            for output in outputs:
                slots.append(Slot(rank, output, shard, len(local_shards), column, split))
                column += shard.num_columns
            local_shards.append(LocalShard(table, shard))
        groups.append(GroupLayout(kernel, weighted, tuple(local_shards), tuple(slots)))
    return tuple(groups)
