"""Who looks up what: the slots of every rank, derived from the plan alone and equal on all ranks.

A *slot* is one feature reading one shard on one rank; an *output* is one feature reading one table, the unit that
the model sees. Slots of a rank are ordered by lookup group, then table, then output, so that each group's ids are one
contiguous run. Outputs that always have equally many bags form a *bag class*: all pooled outputs of an ordinary
collection (one bag per sample), each sequence output (one bag per id), each feature of a variable batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import ColumnWiseSemantics, Shard, ShardingPlan, TablePlan
from neo.planner.semantics import shares_row_state
from neo.tables.spec import Pooling, TableSpec


class Derived(StrEnum):
    """What is made of a feature before it travels."""

    NOTHING = "nothing"
    NORMALISED = "normalised"  # weights divided by the sum of their bag
    SEQUENCE = "sequence"  # a bag for each id


@dataclass(frozen=True)
class Source:
    """The ids (and weights) that an output reads: a feature, or what is derived from it."""

    feature: str
    derived: Derived = Derived.NOTHING


@dataclass(frozen=True)
class Output:
    """One output: columns ``[column, column + dim)`` of its bag class.

    Attributes:
        name: The feature's name where the table is named like it, else ``table.feature``.
        table: Index of the table.
        feature: Name of the feature.
        source: What it reads.
        dim: Columns of the table.
        bag_class: Index of its bag class.
        column: Its first column there.
        is_mean: Whether bags are averaged.
        weighted: Whether ids carry weights.
        replicated: Whether every rank holds the table.
    """

    name: str
    table: int
    feature: str
    source: Source
    dim: int
    bag_class: int
    column: int
    is_mean: bool
    weighted: bool
    replicated: bool


@dataclass(frozen=True)
class BagClass:
    """Outputs with equally many bags.

    Attributes:
        source: The source whose bags they are; None for one bag per sample.
        width: Columns of all its outputs.
    """

    source: Source | None
    width: int


@dataclass(frozen=True)
class RowSplit:
    """The cuts at which the ids of a source are dealt out by row.

    Attributes:
        source: The ids.
        bounds: Where each part begins, then the table's end.
    """

    source: Source
    bounds: tuple[int, ...]


@dataclass(frozen=True)
class Slot:
    """One feature reading one shard.

    Attributes:
        rank: Who looks it up.
        output: Index of the output that it contributes to.
        shard: The part of the table; never empty.
        local_table: Index of the shard among the rank's local tables of its group.
        row_part: Which part of which row split it reads (indices); None if it reads all rows.
    """

    rank: int
    output: int
    shard: Shard
    local_table: int
    row_part: tuple[int, int] | None


@dataclass(frozen=True)
class LocalShard:
    """A shard that a rank holds, and the table it is a part of."""

    table: int
    shard: Shard


@dataclass(frozen=True)
class GroupLayout:
    """The slots of one rank that are looked up together.

    Attributes:
        kernel: The ops backend.
        optimizer: The optimizer of its tables.
        weighted: Whether ids carry weights.
        shares_row_state: Whether its tables' row-wise state is that of whole rows whose columns lie elsewhere too.
        local_shards: The local tables.
        slots: What reads them.
    """

    kernel: str
    optimizer: SparseOptimizerSpec
    weighted: bool
    shares_row_state: bool
    local_shards: tuple[LocalShard, ...]
    slots: tuple[Slot, ...]


@dataclass(frozen=True)
class Layout:
    """Everything that the plan decides, in the order in which it travels.

    Attributes:
        tables: The collection's tables.
        outputs: In declared order.
        bag_classes: See the module.
        row_splits: All cuts that any table needs.
        groups: Per rank, its lookup groups; unweighted groups come first.
        replica_groups: The groups of replicated tables, the same on every rank.
        local_world_size: Ranks of a full node.
    """

    tables: tuple[TableSpec, ...]
    outputs: tuple[Output, ...]
    bag_classes: tuple[BagClass, ...]
    row_splits: tuple[RowSplit, ...]
    groups: tuple[tuple[GroupLayout, ...], ...]
    replica_groups: tuple[GroupLayout, ...]
    local_world_size: int

    def slots(self, rank: int) -> tuple[Slot, ...]:
        """Return the slots of a rank in message order."""
        return tuple(slot for group in self.groups[rank] for slot in group.slots)

    @property
    def shares_row_state(self) -> bool:
        """Whether any table's column shards share their row-wise state, on any rank."""
        return any(group.shares_row_state for groups in self.groups for group in groups)

    @property
    def is_uniform(self) -> bool:
        """Whether every output has one bag per sample."""
        return len(self.bag_classes) == 1 and self.bag_classes[0].source is None


@dataclass(frozen=True)
class _GroupKey:
    weighted: bool
    kernel: str
    shares: bool
    optimizer: int
    sequence_table: int  # each sequence table is looked up alone, since its bags are as many as its ids

    @property
    def order(self) -> tuple[bool, str, bool, int, int]:
        return (self.weighted, self.kernel, self.shares, self.optimizer, self.sequence_table)


@dataclass(frozen=True)
class _Placed:
    """One shard on one rank and what reads it."""

    table: int
    shard: Shard
    outputs: tuple[int, ...]
    row_parts: tuple[tuple[int, int] | None, ...]  # per output


def make_layout(
    tables: Sequence[TableSpec],
    plan: ShardingPlan,
    keys: Mapping[str, str],
    optimizers: Sequence[SparseOptimizerSpec],
    *,
    semantics: ColumnWiseSemantics = ColumnWiseSemantics.EXACT,
    variable_batch: bool = False,
) -> Layout:
    """Derive the layout of a collection from a plan that was checked before.

    Args:
        tables: The collection's tables in declared order.
        plan: The placement of (at least) these tables.
        keys: Plan key of each table name.
        optimizers: The optimizer of each table.
        semantics: What a row-wise optimizer does on tables split by columns.
        variable_batch: Whether each feature may have its own number of bags.
    """
    replicated = [plan.tables[keys[table.name]].is_replicated for table in tables]
    outputs, bag_classes = _outputs(tables, replicated, variable_batch)
    distinct = list(dict.fromkeys(optimizers))
    row_splits: dict[RowSplit, int] = {}
    placed: list[dict[_GroupKey, list[_Placed]]] = [{} for _ in range(plan.world_size)]
    replicas: dict[_GroupKey, list[_Placed]] = {}
    for index, table in enumerate(tables):
        placement = plan.tables[keys[table.name]]
        key = _GroupKey(
            weighted=table.weighted,
            kernel=placement.kernel,
            shares=not replicated[index]
            and shares_row_state(len(placement.column_ranges), optimizers[index], semantics),
            optimizer=distinct.index(optimizers[index]),
            sequence_table=index if table.pooling is Pooling.NONE else -1,
        )
        own = [position for position, output in enumerate(outputs) if output.table == index]
        if replicated[index]:
            whole = Shard(0, 0, table.num_embeddings, 0, table.embedding_dim)
            replicas.setdefault(key, []).append(_Placed(index, whole, tuple(own), (None,) * len(own)))
            continue
        for shard in placement.shards:
            if shard.num_rows and shard.num_columns:
                parts = tuple(_row_part(table, placement, shard, outputs[position], row_splits) for position in own)
                placed[shard.rank].setdefault(key, []).append(_Placed(index, shard, tuple(own), parts))
    return Layout(
        tables=tuple(tables),
        outputs=outputs,
        bag_classes=bag_classes,
        row_splits=tuple(row_splits),
        groups=tuple(_groups(rank, placed[rank], distinct) for rank in range(plan.world_size)),
        replica_groups=_groups(0, replicas, distinct),
        local_world_size=plan.local_world_size,
    )


def _outputs(
    tables: Sequence[TableSpec], replicated: Sequence[bool], variable_batch: bool
) -> tuple[tuple[Output, ...], tuple[BagClass, ...]]:
    outputs: list[Output] = []
    widths: dict[Source | None, int] = {}
    for index, table in enumerate(tables):
        for feature in table.feature_names:
            is_sequence, is_mean = table.pooling is Pooling.NONE, table.pooling is Pooling.MEAN
            source = Source(feature, Derived.SEQUENCE if is_sequence else Derived.NOTHING)
            bags_of = source if is_sequence or variable_batch else None
            column = widths.setdefault(bags_of, 0)
            widths[bags_of] += table.embedding_dim
            outputs.append(
                Output(
                    name=table.output_name(feature),
                    table=index,
                    feature=feature,
                    source=Source(feature, Derived.NORMALISED) if is_mean and table.weighted else source,
                    dim=table.embedding_dim,
                    bag_class=list(widths).index(bags_of),
                    column=column,
                    is_mean=is_mean,
                    weighted=table.weighted,
                    replicated=replicated[index],
                )
            )
    return tuple(outputs), tuple(BagClass(source, width) for source, width in widths.items())


def _row_part(
    table: TableSpec, placement: TablePlan, shard: Shard, output: Output, row_splits: dict[RowSplit, int]
) -> tuple[int, int] | None:
    """Return which part of which row split a shard reads, noting the split; None if it holds all rows."""
    columns = (shard.column_begin, shard.column_end)
    begins = sorted({s.row_begin for s in placement.shards if s.num_rows and (s.column_begin, s.column_end) == columns})
    if len(begins) == 1:
        return None
    split = RowSplit(output.source, (*begins, table.num_embeddings))
    return row_splits.setdefault(split, len(row_splits)), begins.index(shard.row_begin)


def _groups(
    rank: int, placed: Mapping[_GroupKey, list[_Placed]], optimizers: Sequence[SparseOptimizerSpec]
) -> tuple[GroupLayout, ...]:
    groups = []
    for key in sorted(placed, key=lambda key: key.order):
        entries = placed[key]
        slots = tuple(
            Slot(rank, output, entry.shard, local_table, row_part)
            for local_table, entry in enumerate(entries)
            for output, row_part in zip(entry.outputs, entry.row_parts, strict=True)
        )
        groups.append(
            GroupLayout(
                kernel=key.kernel,
                optimizer=optimizers[key.optimizer],
                weighted=key.weighted,
                shares_row_state=key.shares,
                local_shards=tuple(LocalShard(entry.table, entry.shard) for entry in entries),
                slots=slots,
            )
        )
    return tuple(groups)
