import pytest

from neo.comms.collectives import Collectives
from neo.strategy.agreement import RanksDisagreeError, require_agreement
from neo.testing.fake_collectives import run_ranks


def messages(values: list[dict[str, str]]) -> list[str]:
    def ask(collectives: Collectives) -> str:
        try:
            require_agreement(values[collectives.rank], collectives)
        except RanksDisagreeError as error:
            return str(error)
        return ""

    return run_ranks(len(values), ask)


def test_equal_fingerprints_agree() -> None:
    assert messages([{"plan": "a", "config": "b"}] * 3) == ["", "", ""]


def test_every_rank_is_told_who_holds_what() -> None:
    held = [{"plan": "a", "config": "x"}, {"plan": "a", "config": "y"}, {"plan": "b", "config": "x"}]
    found = messages(held)
    assert len(set(found)) == 1
    assert "config: x on ranks 0, 2 but y on rank 1; plan: a on ranks 0, 1 but b on rank 2" in found[0]
    assert "start all ranks from one run folder" in found[0]


def test_a_missing_fingerprint_is_a_difference() -> None:
    assert "config: x on rank 0 but none on rank 1" in messages([{"config": "x"}, {}])[0]


@pytest.mark.parametrize("others", [12])
def test_many_ranks_are_abbreviated(others: int) -> None:
    found = messages([{"plan": "a"}] + [{"plan": "b"}] * others)[0]
    assert "b on ranks 1, 2, 3, 4, 5, 6, 7, 8, ... (12 in all)" in found
