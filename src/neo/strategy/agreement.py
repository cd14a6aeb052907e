"""Whether all ranks hold the same plan and configuration, asked before the first batch."""

from collections.abc import Mapping, Sequence

from neo.comms.collectives import Collectives
from neo.errors import NeoError


class RanksDisagreeError(NeoError):
    """Ranks of one run hold different plans, tables or configurations."""


def require_agreement(fingerprints: Mapping[str, str], collectives: Collectives) -> None:
    """Compare fingerprints over all ranks; every rank must call it.

    Args:
        fingerprints: What is compared, by name: ``plan``, ``config``.
        collectives: The ranks.

    Raises:
        RanksDisagreeError: On every rank, if one differs; names each fingerprint and the ranks that hold it.
    """
    gathered = collectives.all_gather_object(dict(fingerprints))
    held: list[dict[str, str]] = [value for value in gathered if isinstance(value, dict)]
    names = sorted({name for of_rank in held for name in of_rank})
    differences = []
    for name in names:
        ranks_of: dict[str, list[int]] = {}
        for rank, of_rank in enumerate(held):
            ranks_of.setdefault(of_rank.get(name, "none"), []).append(rank)
        if len(ranks_of) > 1:
            each = " but ".join(f"{value} on {_ranks(ranks)}" for value, ranks in ranks_of.items())
            differences.append(f"{name}: {each}")
    if differences:
        raise RanksDisagreeError(
            "the ranks do not hold the same run, so training them together would give a wrong model: "
            + "; ".join(differences)
            + "; start all ranks from one run folder, with the same files and the same command"
        )


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(map(str, ranks[:8]))
    return f"ranks {shown}" if len(ranks) <= 8 else f"ranks {shown}, ... ({len(ranks)} in all)"
