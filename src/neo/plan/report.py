"""The plan as text for people: one row per table, then the bytes of each rank."""

from collections import Counter
from collections.abc import Mapping, Sequence
from io import StringIO

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from neo.plan.memory import MemoryBytes, rank_bytes, table_bytes
from neo.plan.plan_view import PlanView
from neo.plan.sharding_plan import SPLIT_BY_COLUMNS, TablePlan, Tier
from neo.plan.table_names import bare_name
from neo.units import format_bytes

_WIDTH = 98
_MOST_TABLES = 40
_FEW_RANKS = 4  # So few have a row each; of more, those with equal bytes share one.
_MOST_RANKS = 16
_MOST_NOTES = 12


def plan_report(view: PlanView, *, width: int = _WIDTH) -> str:
    """Return the report as plain text, at most ``width`` columns wide."""
    parts: list[RenderableType] = [_tables(view), _ranks(view), *(Text(f"Note: {note}") for note in _notes(view))]
    console = Console(file=StringIO(), width=width, color_system=None, markup=False, emoji=False, highlight=False)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    kept = [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]
    return "\n".join(kept).rstrip() + "\n"


def rank_list(ranks: Sequence[int], world_size: int) -> str:
    """Return ``all``, or the ranks with runs shortened: ``0-3, 7``."""
    distinct = sorted(set(ranks))
    if len(distinct) == world_size and world_size > 1:
        return "all"
    runs: list[list[int]] = []
    for rank in distinct:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    written = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return ", ".join(written) if len(written) <= 4 else f"{', '.join(written[:3])}, … ({len(distinct)} ranks)"


def _tables(view: PlanView) -> Table:
    sizes = {key: table_bytes(placed, view.optimizers[key]).total for key, placed in view.plan.tables.items()}
    keys = list(view.plan.tables)
    shown = set(keys)
    if len(keys) > _MOST_TABLES:
        shown = set(sorted(keys, key=lambda key: (-sizes[key], key))[:_MOST_TABLES])
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    grid.add_column("table", overflow="ellipsis", no_wrap=True, max_width=30)
    grid.add_column("rows x dim", justify="right", no_wrap=True)
    grid.add_column("sharding", no_wrap=True)
    grid.add_column("kernel", no_wrap=True)
    grid.add_column("ranks", overflow="fold")
    grid.add_column("bytes", justify="right", no_wrap=True)
    names = _names(keys)
    for key in keys:
        if key in shown:
            grid.add_row(*_table_row(view, key, names[key], sizes[key]))
    if len(shown) < len(keys):
        rest = sum(sizes[key] for key in keys if key not in shown)
        grid.add_row(f"… {len(keys) - len(shown)} smaller tables", "", "", "", "", format_bytes(rest))
    grid.add_section()
    grid.add_row(f"{len(keys)} table{'' if len(keys) == 1 else 's'}", "", "", "", "", format_bytes(sum(sizes.values())))
    return grid


def _names(keys: Sequence[str]) -> dict[str, str]:
    """Return the bare name of each key, or the key itself where bare names repeat."""
    counts = Counter(bare_name(key) for key in keys)
    return {key: bare_name(key) if counts[bare_name(key)] == 1 else key for key in keys}


def _table_row(view: PlanView, key: str, name: str, size: int) -> tuple[str, ...]:
    placed, table = view.plan.tables[key], view.tables[key]
    holding = [shard.rank for shard in placed.shards if shard.num_rows * shard.num_columns > 0]
    return (
        name,
        f"{table.num_embeddings:,} x {table.embedding_dim}",
        _sharding(placed, key in view.per_shard),
        placed.kernel,
        rank_list(holding, view.plan.world_size),
        format_bytes(size),
    )


def _sharding(placed: TablePlan, per_shard: bool) -> str:
    words = placed.sharding_type.value
    if placed.sharding_type in SPLIT_BY_COLUMNS:
        words += f" {len(placed.column_ranges)}x" + (" per_shard" if per_shard else "")
    return words if placed.tier is Tier.HBM else f"{words} {placed.tier}"


def _ranks(view: PlanView) -> Table:
    totals = [_over_tiers(tiers) for tiers in rank_bytes(view.plan, view.optimizers)]
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    grid.add_column("rank")
    for heading in ("weights", "optimizer", "total"):
        grid.add_column(heading, justify="right")
    if view.capacity_bytes is not None:
        grid.add_column(f"of {format_bytes(view.capacity_bytes)} HBM", justify="right")
    alike: dict[object, list[int]] = {}
    for rank, size in enumerate(totals):
        alike.setdefault(size if len(totals) > _FEW_RANKS else rank, []).append(rank)
    if len(alike) <= _MOST_RANKS:
        for ranks in alike.values():
            grid.add_row(rank_list(ranks, len(totals)), *_rank_row(totals[ranks[0]], view.capacity_bytes))
        return grid
    order = sorted(range(len(totals)), key=lambda rank: (totals[rank].total, rank))
    mean = MemoryBytes(
        sum(size.weights for size in totals) // len(totals), sum(size.optimizer for size in totals) // len(totals)
    )
    grid.add_row(f"fullest ({order[-1]})", *_rank_row(totals[order[-1]], view.capacity_bytes))
    grid.add_row(f"mean of {len(totals)}", *_rank_row(mean, view.capacity_bytes))
    grid.add_row(f"emptiest ({order[0]})", *_rank_row(totals[order[0]], view.capacity_bytes))
    return grid


def _over_tiers(tiers: Mapping[Tier, MemoryBytes]) -> MemoryBytes:
    total = MemoryBytes()
    for size in tiers.values():
        total += size
    return total


def _rank_row(size: MemoryBytes, capacity_bytes: int | None) -> tuple[str, ...]:
    cells = (format_bytes(size.weights), format_bytes(size.optimizer), format_bytes(size.total))
    if capacity_bytes is None:
        return cells
    return (*cells, f"{size.total / capacity_bytes:.1%}" if capacity_bytes > 0 else "off")


def _notes(view: PlanView) -> list[str]:
    notes = [view.exchange] if view.exchange else []
    if view.per_shard:
        count = f"{len(view.per_shard)} table{'' if len(view.per_shard) == 1 else 's'}"
        names = " and ".join(sorted({view.optimizers[key].name for key in view.per_shard}))
        notes.append(
            f"column_wise_semantics is per_shard: on {count} each column shard keeps its own {names} "
            "state, which trains differently from the unsharded table."
        )
    notes += view.fallbacks[:_MOST_NOTES]
    if len(view.fallbacks) > _MOST_NOTES:
        notes.append(f"{len(view.fallbacks) - _MOST_NOTES} more fallbacks; summary.json lists them all.")
    return notes
