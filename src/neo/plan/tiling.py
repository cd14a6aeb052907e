"""What the checks of all sharding types are made of: shards that are in bounds, complete, disjoint, on one node."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from neo.errors import Finding
from neo.hardware.topology import node_of, ranks_of_node
from neo.plan.sharding_plan import Shard
from neo.tables.spec import TableSpec

Range = tuple[int, int]


def rows_of(shard: Shard) -> Range:
    """Return the rows of a shard."""
    return shard.row_begin, shard.row_end


def columns_of(shard: Shard) -> Range:
    """Return the columns of a shard."""
    return shard.column_begin, shard.column_end


def out_of_bounds(shards: Sequence[Shard], table: TableSpec, world_size: int) -> list[Finding]:
    """Return a finding for each rank outside the world and each range outside the table."""
    findings = []
    for index, shard in enumerate(shards):
        if not 0 <= shard.rank < world_size:
            findings.append(Finding(f"shards[{index}].rank", f"rank {shard.rank} is outside [0, {world_size})"))
        for side, (begin, end), length in _sides(shard, table):
            if not 0 <= begin <= end <= length:
                problem = f"[{begin}, {end}) is no range within [0, {length}), the {side} of the table"
                findings.append(Finding(f"shards[{index}].{side}", problem))
    return findings


def not_full(shards: Sequence[Shard], table: TableSpec, sides: tuple[str, ...]) -> list[Finding]:
    """Return a finding for each shard that lacks some of the table's ``rows`` or ``columns``."""
    findings = []
    for index, shard in enumerate(shards):
        for side, (begin, end), length in _sides(shard, table):
            if side in sides and (begin, end) != (0, length):
                problem = f"[{begin}, {end}) must be all {side} of the table, [0, {length}), for this sharding type"
                findings.append(Finding(f"shards[{index}].{side}", problem))
    return findings


def without_columns(shards: Sequence[Shard]) -> list[Finding]:
    """Return a finding for each shard without columns."""
    return [
        Finding(f"shards[{index}].columns", "a column shard without columns", "leave it out")
        for index, shard in enumerate(shards)
        if shard.num_columns == 0
    ]


def gaps_and_overlaps(bounds: Iterable[Range], length: int, side: Callable[[Range], str]) -> list[Finding]:
    """Check that ranges cover ``[0, length)`` exactly once; empty ones do not matter.

    Args:
        bounds: The ranges.
        length: Where they must end.
        side: Turns a range into words: ``rows [4, 5)``.
    """
    findings = []
    reached = 0
    for begin, end in sorted(bound for bound in bounds if bound[0] < bound[1]):
        if begin > reached:
            findings.append(Finding("shards", f"{side((reached, begin))} are in no shard"))
        if begin < reached:
            findings.append(Finding("shards", f"{side((begin, min(end, reached)))} are in more than one shard"))
        reached = max(reached, end)
    if reached < length:
        findings.append(Finding("shards", f"{side((reached, length))} are in no shard"))
    return findings


def in_words(side: str, of: str = "") -> Callable[[Range], str]:
    """Return what writes a range as ``rows [4, 5)``, with ``of`` behind it."""
    return lambda bounds: f"{side} [{bounds[0]}, {bounds[1]}){of}"


def beyond_a_node(
    indices: Sequence[int], shards: Sequence[Shard], *, what: str, fix: str, world_size: int, local_world_size: int
) -> list[Finding]:
    """Return a finding for each of the shards that is on another node than the first of them.

    Args:
        indices: Which of ``shards`` must lie on one node.
        shards: All shards of the table.
        what: What they are together, for the message: ``a table_row_wise table``.
        fix: What else could be done.
        world_size: Ranks of the plan.
        local_world_size: Ranks of a full node.
    """
    findings = []
    first = indices[0]
    home = node_of(shards[first].rank, local_world_size)
    ranks = ranks_of_node(home, world_size, local_world_size)
    own = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
    for index in indices[1:]:
        rank = shards[index].rank
        node = node_of(rank, local_world_size)
        if node != home:
            problem = f"rank {rank} is on node {node}, but shards[{first}] of {what} is on node {home}"
            findings.append(Finding(f"shards[{index}].rank", problem, f"use {own}, or {fix}"))
    return findings


def twice_on_a_rank(shards: Sequence[Shard]) -> list[Finding]:
    """Return a finding if a rank has more than one of the shards."""
    counts = Counter(shard.rank for shard in shards)
    twice = sorted(rank for rank, count in counts.items() if count > 1)
    if not twice:
        return []
    return [Finding("shards", f"{listed(twice)} {have(twice)} more than one shard of this table", "join them")]


def have(ranks: Sequence[int]) -> str:
    """Return the verb that follows a list of ranks."""
    return "has" if len(ranks) == 1 else "have"


def listed(ranks: Sequence[int], limit: int = 8) -> str:
    """Return ``ranks 0, 2``; of many only the first."""
    named = ", ".join(str(rank) for rank in ranks[:limit])
    more = f" and {len(ranks) - limit} more" if len(ranks) > limit else ""
    return f"rank{'' if len(ranks) == 1 else 's'} {named}{more}"


def _sides(shard: Shard, table: TableSpec) -> tuple[tuple[str, Range, int], ...]:
    return (("rows", rows_of(shard), table.num_embeddings), ("columns", columns_of(shard), table.embedding_dim))
