import pytest

from neo.plan.report import plan_report, rank_list
from neo.plan.sharding_plan import ColumnWiseSemantics
from unit.plan.builders import plan_for, table, tables


def test_a_plan_in_full() -> None:
    specs = tables(table("user", rows=1000, dim=64), table("item", rows=2000, dim=20), table("tiny", rows=3))
    overrides = {"user": "column_wise", "item": "row_wise", "tiny": "data_parallel"}
    result = plan_for(specs, overrides=overrides, optimizer="rowwise_adagrad", semantics=ColumnWiseSemantics.PER_SHARD)
    lines = [line.strip() for line in plan_report(result.view).splitlines()]
    assert [" ".join(line.split()) for line in lines if "─" not in line] == [
        "table rows x dim sharding kernel ranks bytes",
        "item 2,000 x 20 row_wise reference all 164.1 KiB",
        "tiny 3 x 8 data_parallel reference all 216 B",
        "user 1,000 x 64 column_wise 2x per_shard reference all 257.8 KiB",
        "",
        "3 tables 422.1 KiB",
        "",
        "rank weights optimizer total of 37.3 GiB HBM",
        "0 203.2 KiB 7.8 KiB 211.0 KiB 0.0%",
        "1 203.2 KiB 7.8 KiB 211.0 KiB 0.0%",
        "",
        "Note: column_wise_semantics is per_shard: on 1 table each column shard keeps its own",
        "rowwise_adagrad state, which trains differently from the unsharded table.",
    ]


def test_the_report_stays_under_100_columns_and_shortens_long_lists() -> None:
    specs = tables(*(table(f"a_table_with_a_very_long_name_indeed_{index}", rows=1000 + index) for index in range(90)))
    report = plan_report(plan_for(specs, "table_wise", world_size=128).view)
    assert max(map(len, report.splitlines())) < 100
    assert "… 50 smaller tables" in report
    assert "90 tables" in report
    assert "mean of 128" in report
    assert len(report.splitlines()) < 60


def test_names_that_look_like_markup_are_shown_as_they_are() -> None:
    report = plan_report(plan_for(tables(table("[red]")), world_size=1).view)
    assert "[red]" in report


def test_fallbacks_are_told() -> None:
    specs = tables(*(table(f"t{index}", dim=10) for index in range(5)))
    report = " ".join(plan_report(plan_for(specs, ops_backend="auto").view).split())
    assert "Note: t0, t1, t2 and 2 more: kernel reference in place of fbgemm: " in report


@pytest.mark.parametrize(
    ("ranks", "written"),
    [
        ([0], "0"),
        ([0, 1, 2, 3], "all"),
        ([1, 2, 3], "1-3"),
        ([0, 2], "0, 2"),
        ([0, 1], "0, 1"),
    ],
)
def test_rank_lists(ranks: list[int], written: str) -> None:
    assert rank_list(ranks, 4) == written


def test_a_scattered_rank_list_is_shortened() -> None:
    assert rank_list(list(range(0, 20, 2)), 20) == "0, 2, 4, … (10 ranks)"


def test_ranks_with_equal_bytes_share_a_row() -> None:
    specs = tables(*(table(f"t{index}") for index in range(8)))
    lines = plan_report(plan_for(specs, "table_wise", world_size=16).view).splitlines()
    at = next(index for index, line in enumerate(lines) if line.lstrip().startswith("rank "))
    assert [" ".join(line.split()[:3]) for line in lines[at + 2 :]] == ["0-7 3.1 KiB", "8-15 0 B"]
