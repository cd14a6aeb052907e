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


def named(shard: Shard) -> str:
    """Return what tells a reader of ``plan.json`` which shard is meant: a line may stand for several of them."""
    return (
        f"the shard of rank {shard.rank}, {in_words('rows')(rows_of(shard))}, {in_words('columns')(columns_of(shard))}"
    )


def out_of_bounds(shards: Sequence[Shard], table: TableSpec, world_size: int) -> list[Finding]:
    """Return a finding for each rank outside the world and each range outside the table."""
    findings = []
    for shard in shards:
        if not 0 <= shard.rank < world_size:
            fix = f"write a rank from 0 to {world_size - 1}"
            findings.append(Finding("shards", f"{named(shard)}, is on no rank of this world", fix))
        for side, (begin, end), length in _sides(shard, table):
            if not 0 <= begin <= end <= length:
                problem = f"{named(shard)}, has {side} that are no range within [0, {length}), those of the table"
                fix = f"write {side}: [begin, end] with 0 <= begin <= end <= {length}"
                findings.append(Finding("shards", problem, fix))
    return findings


def not_full(shards: Sequence[Shard], table: TableSpec, sides: tuple[str, ...]) -> list[Finding]:
    """Return a finding for each shard that lacks some of the table's ``rows`` or ``columns``."""
    findings = []
    for shard in shards:
        for side, bounds, length in _sides(shard, table):
            if side in sides and bounds != (0, length):
                problem = f"{named(shard)}, must have all {side} of the table, for this sharding type"
                findings.append(Finding("shards", problem, f"write {side}: [0, {length}], or another sharding_type"))
    return findings


def without_columns(shards: Sequence[Shard]) -> list[Finding]:
    """Return a finding for each shard without columns."""
    empty = [shard for shard in shards if shard.num_columns == 0]
    return [Finding("shards", f"{named(shard)}, has no columns", "leave it out") for shard in empty]


def gaps_and_overlaps(bounds: Iterable[Range], length: int, side: str, of: str = "") -> list[Finding]:
    """Check that ranges cover ``[0, length)`` exactly once; empty ones do not matter.

    Args:
        bounds: The ranges.
        length: Where they must end.
        side: ``rows`` or ``columns``.
        of: What else is to be said of a range: `` of columns [0, 4)``.
    """
    written = in_words(side, of)

    def gap(begin: int, end: int) -> Finding:
        fix = f"add a shard with {side}: [{begin}, {end}], or let a neighbour reach over them"
        return Finding("shards", f"{written((begin, end))} are in no shard", fix)

    findings = []
    reached = 0
    for begin, end in sorted(bound for bound in bounds if bound[0] < bound[1]):
        if begin > reached:
            findings.append(gap(reached, begin))
        if begin < reached:
            problem = f"{written((begin, min(end, reached)))} are in more than one shard"
            findings.append(Finding("shards", problem, "let one of the shards end where the other begins"))
        reached = max(reached, end)
    if reached < length:
        findings.append(gap(reached, length))
    return findings


def in_words(side: str, of: str = "") -> Callable[[Range], str]:
    """Return what writes a range as ``rows [4, 5)``, with ``of`` behind it."""
    return lambda bounds: f"{side} [{bounds[0]}, {bounds[1]}){of}"


def beyond_a_node(
    shards: Sequence[Shard], *, what: str, fix: str, world_size: int, local_world_size: int
) -> list[Finding]:
    """Return a finding for each of the shards that is on another node than the first of them.

    Args:
        shards: What must lie on one node; at least one.
        what: What they are together, for the message: ``a table_row_wise table``.
        fix: What else could be done.
        world_size: Ranks of the plan.
        local_world_size: Ranks of a full node.
    """
    findings = []
    home = node_of(shards[0].rank, local_world_size)
    ranks = ranks_of_node(home, world_size, local_world_size)
    own = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
    for shard in shards[1:]:
        node = node_of(shard.rank, local_world_size)
        if node != home:
            problem = f"{named(shard)}, is on node {node}, but {what} begins on node {home} (rank {shards[0].rank})"
            findings.append(Finding("shards", problem, f"use {own}, or {fix}"))
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
