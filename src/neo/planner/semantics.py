"""What a row-wise optimizer does on tables that are split by columns."""

from collections.abc import Sequence

from neo.errors import ConfigError, Finding
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import ColumnWiseSemantics, ShardingPlan, ShardingType
from neo.plan.table_names import bare_name


def per_shard_tables(plan: ShardingPlan, optimizer: SparseOptimizerSpec) -> tuple[str, ...]:
    """Return the keys of tables whose column shards keep row-wise state of their own."""
    if not optimizer.is_rowwise:
        return ()
    split = (ShardingType.COLUMN_WISE,)
    return tuple(key for key, placed in plan.tables.items() if placed.sharding_type in split and len(placed.shards) > 1)


def effective_semantics(
    asked: ColumnWiseSemantics | None, per_shard: tuple[str, ...], optimizer: SparseOptimizerSpec
) -> ColumnWiseSemantics:
    """Return what will run: exact, unless a row-wise optimizer meets a table that is really split by columns.

    Raises:
        ConfigError: ``exact`` was asked for where it cannot be had yet.
    """
    if not per_shard:
        return ColumnWiseSemantics.EXACT
    if asked is not ColumnWiseSemantics.EXACT:
        return ColumnWiseSemantics.PER_SHARD
    raise ConfigError([exact_refused(per_shard, optimizer)])


def exact_refused(per_shard: Sequence[str], optimizer: SparseOptimizerSpec) -> Finding:
    """Return why ``exact`` cannot be had for these tables, given by their keys."""
    names = ", ".join(bare_name(key) for key in per_shard)
    problem = (
        f"'exact' cannot be had yet for {names}: {optimizer.name} keeps one value per row, and the columns of "
        f"{'this table are' if len(per_shard) == 1 else 'these tables are'} split"
    )
    fix = "use per_shard, an optimizer with a value per element (adagrad), or another sharding for them"
    return Finding("sharding.column_wise_semantics", problem, fix)
