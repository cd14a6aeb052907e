"""The plan as a picture: of each table, which rank holds how much; of each rank, how full it is."""

from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from neo.config.resolve import read_resolved
from neo.config.run_config import RunConfig
from neo.errors import NeoError
from neo.plan.memory import MemoryBytes, rank_bytes, shard_bytes, table_bytes
from neo.plan.plan_reader import read_plan
from neo.plan.report import rank_list
from neo.plan.sharding_plan import ShardingPlan, TablePlan
from neo.plan.table_names import bare_name
from neo.units import format_bytes

_MOST_TABLES = 60
_MOST_RANKS_DRAWN = 256
_MOST_RANKS_WITH_BARS = 32


def placement(run_dir: Path) -> str:
    """Return the section about the plan; says so where there is none."""
    try:
        plan = read_plan(run_dir / "plan.json")
        config = read_resolved(run_dir / "resolved.yaml")
    except (NeoError, OSError):
        return "<p>There is no plan.</p>"
    totals = [
        sum(tiers.values(), MemoryBytes())
        for tiers in rank_bytes(plan, {key: config.optim.sparse_for(bare_name(key)) for key in plan.tables})
    ]
    return _tables(plan, config) + _ranks(totals)


def _tables(plan: ShardingPlan, config: RunConfig) -> str:
    sizes = {
        key: table_bytes(placed, config.optim.sparse_for(bare_name(key))).total for key, placed in plan.tables.items()
    }
    shown = sorted(plan.tables, key=lambda key: -sizes[key])[:_MOST_TABLES]
    rows = [_table_row(key, plan, config, sizes[key]) for key in plan.tables if key in set(shown)]
    if left := len(plan.tables) - len(shown):
        rest = sum(size for key, size in sizes.items() if key not in set(shown))
        rows.append(f'<tr><td colspan="5">{left} smaller tables</td><td class="n">{format_bytes(rest)}</td></tr>')
    heads = ("table", "rows &times; dim", "sharding", "kernel", f"ranks 0 to {plan.world_size - 1}", "bytes")
    numeric = {1, 5}
    head = "".join(f"<th{' class=n' if at in numeric else ''}>{name}</th>" for at, name in enumerate(heads))
    return f'<div class="wide"><table class="plan"><tr>{head}</tr>{"".join(rows)}</table></div>'


def _table_row(key: str, plan: ShardingPlan, config: RunConfig, size: int) -> str:
    placed = plan.tables[key]
    num_rows = max((shard.row_end for shard in placed.shards), default=0)
    num_columns = max((shard.column_end for shard in placed.shards), default=0)
    tier = "" if placed.tier.value == "hbm" else f" {placed.tier.value}"
    cells = (
        f'<td title="{escape(key)}">{escape(bare_name(key))}</td>',
        f'<td class="n">{num_rows:,} &times; {num_columns}</td>',
        f'<td><span class="chip">{placed.sharding_type.value}</span>{tier}</td>',
        f"<td>{escape(placed.kernel)}</td>",
        f"<td>{_strip(bare_name(key), placed, plan.world_size, config)}</td>",
        f'<td class="n">{format_bytes(size)}</td>',
    )
    return f"<tr>{''.join(cells)}</tr>"


def _strip(name: str, placed: TablePlan, world_size: int, config: RunConfig) -> str:
    """Return one small square per rank, the darker the more of the table it holds."""
    if world_size > _MOST_RANKS_DRAWN:
        return escape(rank_list([shard.rank for shard in placed.shards], world_size))
    optimizer = config.optim.sparse_for(name)
    held = [0] * world_size
    for shard in placed.shards:
        held[shard.rank] += shard_bytes(shard, optimizer).total
    whole = max(1, max(held))
    width = max(3, min(18, 288 // world_size))
    gap = 2 if width > 6 else 0
    squares, begin = [], 0
    for size, run in groupby(held):
        end = begin + len(list(run))
        apart = range(begin, end) if gap else [begin]  # where squares touch, equal neighbours are one
        for first in apart:
            last = first + 1 if gap else end
            look = f'class="held" fill-opacity="{0.25 + 0.75 * size / whole:.2f}"' if size else 'class="free"'
            squares.append(
                f'<rect {look} x="{first * width}" y="0" width="{(last - first) * width - gap}" height="14" rx="2">'
                f"<title>rank {first}{f' to {last - 1}' if last - first > 1 else ''}: "
                f"{format_bytes(size) if size else 'nothing'}</title></rect>"
            )
        begin = end
    span = world_size * width
    return f'<svg class="strip" width="{span}" height="14" viewBox="0 0 {span} 14">{"".join(squares)}</svg>'


def _ranks(totals: Sequence[MemoryBytes]) -> str:
    fullest = max(1, *(size.total for size in totals))
    if len(totals) > _MOST_RANKS_WITH_BARS:
        mean = sum(size.total for size in totals) / len(totals)
        least = min(size.total for size in totals)
        return (
            f"<p>{len(totals)} ranks hold {format_bytes(fullest)} at most, {format_bytes(mean)} on average, "
            f"{format_bytes(least)} at least.</p>"
        )
    rows = []
    for rank, size in enumerate(totals):
        weights, states = (100 * part / fullest for part in (size.weights, size.optimizer))
        rows.append(
            f'<tr><td class="n">{rank}</td><td class="bar"><i class="w" style="width:{weights:.2f}%"></i>'
            f'<i class="o" style="width:{states:.2f}%"></i></td><td class="n">{format_bytes(size.weights)}</td>'
            f'<td class="n">{format_bytes(size.optimizer)}</td><td class="n">{format_bytes(size.total)}</td></tr>'
        )
    head = (
        '<tr><th class="n">rank</th><th><span class="key w">weights</span><span class="key o">optimizer</span></th>'
        '<th class="n">weights</th><th class="n">optimizer</th><th class="n">total</th></tr>'
    )
    return f'<div class="wide"><table class="ranks">{head}{"".join(rows)}</table></div>'
