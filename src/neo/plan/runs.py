"""Runs of shards that one line of ``plan.json`` stands for: how shards become lines, and lines shards again.

A line has ranks ``[a, b)``, rows and columns. ``row_wise`` and ``table_row_wise`` cut the rows, ``column_wise`` and
``table_column_wise`` the columns into b - a equal parts. A ``grid`` line cuts the columns into equal parts, one per
node, and the rows of each as evenly as can be over the ranks of its node, the first of them taking the larger parts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neo.hardware.topology import node_of, ranks_of_node
from neo.plan.sharding_plan import Shard, ShardingType, even_splits

Range = tuple[int, int]
LONGEST_PLAIN_RUN = 8
"""Longer runs are abbreviated; the plans of one node stay plain."""
CUT_ROWS = (ShardingType.ROW_WISE, ShardingType.TABLE_ROW_WISE)
CUT_COLUMNS = (ShardingType.COLUMN_WISE, ShardingType.TABLE_COLUMN_WISE)


@dataclass(frozen=True)
class Line:
    """What one line says.

    Attributes:
        ranks: ``[a, b)``.
        rows: Of all its shards together.
        columns: Of all its shards together.
        is_run: Whether it stands for a run of shards, one after the other over its ranks, and not for one shard.
    """

    ranks: Range
    rows: Range
    columns: Range
    is_run: bool


def lines_of(
    shards: Sequence[Shard], sharding_type: ShardingType, world_size: int, local_world_size: int
) -> list[Line]:
    """Return the lines for the shards of one table, long runs abbreviated."""
    if sharding_type is ShardingType.GRID:
        return _grid_lines(shards, world_size, local_world_size)
    runs: list[list[Shard]] = []
    for shard in shards:
        if runs and _continues(runs[-1][-1], shard, sharding_type):
            runs[-1].append(shard)
        else:
            runs.append([shard])
    return [line for run in runs for line in _run_lines(run)]


def cut_equally(bounds: Range, num_parts: int) -> list[Range] | None:
    """Cut a range into equal parts; None if that cannot be."""
    begin, end = bounds
    width, rest = divmod(end - begin, num_parts)
    return None if rest else [(begin + index * width, begin + (index + 1) * width) for index in range(num_parts)]


def nodes_within(ranks: Range, world_size: int, local_world_size: int) -> list[range] | None:
    """Return the ranks of a grid line node by node: a part of one node, or several whole nodes; None if neither."""
    first, last = node_of(ranks[0], local_world_size), node_of(ranks[1] - 1, local_world_size)
    if first == last:
        return [range(*ranks)]
    nodes = [ranks_of_node(node, world_size, local_world_size) for node in range(first, last + 1)]
    return nodes if (nodes[0].start, nodes[-1].stop) == ranks else None


def grid_shards(nodes: Sequence[range], rows: Range, columns: Sequence[Range]) -> list[Shard]:
    """Return the shards of one grid line: one column range per node, its rows over the ranks of the node."""
    begin, end = rows
    return [
        Shard(rank, begin + first, begin + last, *bounds)
        for ranks, bounds in zip(nodes, columns, strict=True)
        for rank, (first, last) in zip(ranks, even_splits(end - begin, len(ranks)), strict=True)
    ]


def _continues(last: Shard, shard: Shard, sharding_type: ShardingType) -> bool:
    if shard.rank != last.rank + 1 or (shard.num_rows, shard.num_columns) != (last.num_rows, last.num_columns):
        return False
    if sharding_type in CUT_ROWS:
        return shard.row_begin == last.row_end and shard.column_begin == last.column_begin
    if sharding_type in CUT_COLUMNS:
        return shard.column_begin == last.column_end and shard.row_begin == last.row_begin
    return (shard.row_begin, shard.column_begin) == (last.row_begin, last.column_begin)


def _run_lines(run: Sequence[Shard]) -> list[Line]:
    if len(run) <= LONGEST_PLAIN_RUN:
        return [_plain(shard) for shard in run]
    return [_joined(run)]


def _grid_lines(shards: Sequence[Shard], world_size: int, local_world_size: int) -> list[Line]:
    by_columns: dict[Range, list[Shard]] = {}
    for shard in shards:
        by_columns.setdefault((shard.column_begin, shard.column_end), []).append(shard)
    lines: list[Line] = []
    joined: list[Line] = []
    for _, block in sorted(by_columns.items()):
        line = _joined(block)
        if not _is_even(block, world_size, local_world_size):
            lines += [*_written(joined, by_columns), *map(_plain, block)]
            joined = []
            continue
        if joined and not _continues_grid(joined[-1], line, world_size, local_world_size):
            lines += _written(joined, by_columns)
            joined = []
        joined.append(line)
    return lines + _written(joined, by_columns)


def _is_even(block: Sequence[Shard], world_size: int, local_world_size: int) -> bool:
    """Return whether one line would be read as exactly the shards of one column range."""
    line = _joined(block)
    if line.ranks[1] - line.ranks[0] != len(block):
        return False
    nodes = nodes_within(line.ranks, world_size, local_world_size)
    return nodes is not None and len(nodes) == 1 and grid_shards(nodes, line.rows, [line.columns]) == list(block)


def _continues_grid(last: Line, line: Line, world_size: int, local_world_size: int) -> bool:
    """Return whether ``line`` does on the next whole node what ``last`` does on its own."""
    whole = [
        ranks_of_node(node_of(each.ranks[0], local_world_size), world_size, local_world_size) for each in (last, line)
    ]
    if [(ranks.start, ranks.stop) for ranks in whole] != [last.ranks, line.ranks]:
        return False
    follows = (line.ranks[0], line.columns[0], line.rows) == (last.ranks[1], last.columns[1], last.rows)
    return follows and line.columns[1] - line.columns[0] == last.columns[1] - last.columns[0]


def _written(joined: Sequence[Line], by_columns: Mapping[Range, Sequence[Shard]]) -> list[Line]:
    """Return one line for all of ``joined``, or where that is a short run the shards one by one."""
    if not joined:
        return []
    first, last = joined[0], joined[-1]
    if last.ranks[1] - first.ranks[0] <= LONGEST_PLAIN_RUN:
        return [_plain(shard) for line in joined for shard in by_columns[line.columns]]
    return [Line((first.ranks[0], last.ranks[1]), first.rows, (first.columns[0], last.columns[1]), is_run=True)]


def _plain(shard: Shard) -> Line:
    rows, columns = (shard.row_begin, shard.row_end), (shard.column_begin, shard.column_end)
    return Line((shard.rank, shard.rank + 1), rows, columns, is_run=False)


def _joined(run: Sequence[Shard]) -> Line:
    first, last = run[0], run[-1]
    rows, columns = (first.row_begin, last.row_end), (first.column_begin, last.column_end)
    return Line((first.rank, last.rank + 1), rows, columns, is_run=True)
