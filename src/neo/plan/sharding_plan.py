"""The placement decision: which rank holds which rows and columns of which table.

Shards are half-open ranges of the logical table: rows ``[a, b)``, columns ``[a, b)``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise


class ShardingType(StrEnum):
    """How one table is laid over the ranks.

    ``ROW_WISE`` and ``COLUMN_WISE`` cut over any ranks, ``TABLE_ROW_WISE`` and ``TABLE_COLUMN_WISE`` over the ranks of
    one node; ``GRID`` cuts the columns over nodes and the rows of each column range over the ranks of its node.
    """

    TABLE_WISE = "table_wise"
    ROW_WISE = "row_wise"
    COLUMN_WISE = "column_wise"
    DATA_PARALLEL = "data_parallel"
    TABLE_ROW_WISE = "table_row_wise"
    TABLE_COLUMN_WISE = "table_column_wise"
    GRID = "grid"


SPLIT_BY_COLUMNS = (ShardingType.COLUMN_WISE, ShardingType.TABLE_COLUMN_WISE, ShardingType.GRID)
"""Types that cut the columns of a table, where it is wide enough and there are several places for them."""


class Tier(StrEnum):
    """The memory that holds a shard."""

    HBM = "hbm"
    DDR = "ddr"
    SSD = "ssd"


class ColumnWiseSemantics(StrEnum):
    """What a row-wise optimizer does on a table that is split by columns.

    ``EXACT`` shares the row's sum of squares over its column shards; ``PER_SHARD`` lets each shard keep its own.
    """

    EXACT = "exact"
    PER_SHARD = "per_shard"


@dataclass(frozen=True)
class Shard:
    """A rectangle of a table on one rank; it may be empty (``row_begin == row_end``)."""

    rank: int
    row_begin: int
    row_end: int
    column_begin: int
    column_end: int

    @property
    def num_rows(self) -> int:
        """Rows of this shard."""
        return self.row_end - self.row_begin

    @property
    def num_columns(self) -> int:
        """Columns of this shard."""
        return self.column_end - self.column_begin


@dataclass(frozen=True)
class TablePlan:
    """The placement of one table.

    Attributes:
        sharding_type: How it is split. ``DATA_PARALLEL`` has one full-range shard per rank.
        shards: In order of (rows, columns); every type but data-parallel tiles the table exactly.
        kernel: The ops backend that executes it; ``auto`` until it is decided.
        tier: The memory that holds it.
        cache_bytes: Size of its cache in the tier above.
    """

    sharding_type: ShardingType
    shards: tuple[Shard, ...]
    kernel: str = "auto"
    tier: Tier = Tier.HBM
    cache_bytes: int = 0

    def __post_init__(self) -> None:
        # Plain text that names a member means that member; other text is a ValueError of the enumeration.
        object.__setattr__(self, "sharding_type", ShardingType(self.sharding_type))
        object.__setattr__(self, "tier", Tier(self.tier))

    @property
    def is_replicated(self) -> bool:
        """Whether every rank holds the whole table."""
        return self.sharding_type is ShardingType.DATA_PARALLEL

    @property
    def column_ranges(self) -> tuple[tuple[int, int], ...]:
        """The distinct column ranges of its shards, in column order; more than one if its columns are split."""
        return tuple(sorted({(s.column_begin, s.column_end) for s in self.shards if s.num_rows and s.num_columns}))


@dataclass(frozen=True)
class ShardingPlan:
    """The placement of every table.

    Attributes:
        world_size: Ranks.
        local_world_size: Ranks of a full node; the last one may have fewer.
        tables: By key (``module.path.name`` in training).
        column_wise_semantics: What was planned for tables that a row-wise optimizer meets split by columns; None where
            there are none, or where a plan written by hand leaves it open.
    """

    world_size: int
    local_world_size: int
    tables: Mapping[str, TablePlan] = field(default_factory=dict)
    column_wise_semantics: ColumnWiseSemantics | None = None


def reading_order(shard: Shard) -> tuple[int, int, int, int]:
    """Return what the shards of one table are sorted by: rows, columns, and where those are empty the rank."""
    return shard.row_begin, shard.column_begin, shard.row_end, shard.rank


def even_splits(length: int, num_parts: int, multiple: int = 1) -> list[tuple[int, int]]:
    """Cut ``[0, length)`` into ``num_parts`` ranges as even as possible, in units of ``multiple``.

    The first ranges take the larger share; the last non-empty range takes what is no whole unit. Later ranges
    are empty where there are fewer units than parts.
    """
    units = -(-length // multiple)
    base, extra = divmod(units, num_parts)
    bounds = [0]
    for part in range(num_parts):
        bounds.append(min(length, bounds[-1] + (base + (part < extra)) * multiple))
    return list(pairwise(bounds))
