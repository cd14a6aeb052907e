"""What a row-wise optimizer does on tables that are split by columns."""

from collections.abc import Mapping

from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import ColumnWiseSemantics, ShardingPlan

NO_SUCH_TABLE = "no table with a row-wise optimizer is split by columns"
"""Why ``per_shard`` may be without effect."""


def shares_row_state(num_column_ranges: int, optimizer: SparseOptimizerSpec, semantics: ColumnWiseSemantics) -> bool:
    """Return whether the column shards of a table must share the state of their rows.

    Args:
        num_column_ranges: Into how many the columns are really split.
        optimizer: The table's sparse optimizer.
        semantics: What is asked for.
    """
    return num_column_ranges > 1 and optimizer.is_rowwise and semantics is ColumnWiseSemantics.EXACT


def per_shard_tables(
    plan: ShardingPlan, optimizers: Mapping[str, SparseOptimizerSpec], semantics: ColumnWiseSemantics
) -> tuple[str, ...]:
    """Return the keys of tables whose column shards keep row-wise state of their own.

    Args:
        plan: The plan.
        optimizers: The sparse optimizer of each table, by plan key.
        semantics: What is asked for; with ``exact`` there are none.
    """
    return () if semantics is ColumnWiseSemantics.EXACT else rowwise_on_columns(plan, optimizers)


def rowwise_on_columns(plan: ShardingPlan, optimizers: Mapping[str, SparseOptimizerSpec]) -> tuple[str, ...]:
    """Return the keys of tables that a row-wise optimizer meets split by columns; ``optimizers`` by plan key."""
    return tuple(
        key for key, placed in plan.tables.items() if optimizers[key].is_rowwise and len(placed.column_ranges) > 1
    )
