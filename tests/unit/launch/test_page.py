"""``summary.html``: one self-contained page, whatever became of the run."""

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from neo.launch.page.chart import Chart, Line, draw
from neo.launch.page.history import read_history
from neo.launch.page.page import PAGE, page, write_page
from neo.launch.summary import RunFacts, Status, complete_summary, write_facts
from neo.plan.serialize import write_plan
from neo.plan.sharding_plan import ShardingType
from neo.tables.spec import TableSpec
from placements import plan_for

RESOLVED = """
seed: 3
hardware: {name: local, detect: true}
optim: {sparse: {name: sgd}}
# <b>
"""
SUMMARY: dict[str, Any] = {
    "status": "done",
    "steps": 20,
    "samples": 2_000_000,
    "samples_per_s": 125_000.0,
    "step_time_s": {"median": 0.016, "p10": 0.015, "p90": 0.02},
    "train_loss": 0.51,
    "val": {"auc": 0.8371, "ne": 0.7258, "log_loss": 0.45, "accuracy": 0.78, "calibration": 1.01, "samples": 5000},
    "data": {"attainable_auc": 0.8436, "attainable_ne": 0.7131},
    "traffic_bytes_per_step": {"within_nodes": 3000.0, "between_nodes": 0.0, "all_reduced": 8.0},
    "planned_for": "2 ZionEX accelerators",
    "fallbacks": ["table 'a': reference instead of <fbgemm>"],
    "versions": {"torch": "2.13.0"},
}
_VOID = {"meta"}


class _Checker(HTMLParser):
    """Sees that every element is closed in its order, and collects the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes |= {name for name, _ in attrs}
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def checked(text: str) -> str:
    """Return the words of a page that is well formed and asks for nothing from outside."""
    checker = _Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == []
    assert not checker.attributes & {"src", "href", "onclick", "onload"}
    assert "<script" not in text and "url(" not in text and "@import" not in text
    return " ".join(" ".join(checker.text).split())


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "run & one"
    (folder / "logs").mkdir(parents=True)
    tables = [TableSpec("user", 100, 8, ("user",)), TableSpec("item", 10, 8, ("item",))]
    write_plan(folder / "plan.json", plan_for(tables, ShardingType.ROW_WISE, 2, "reference"))
    (folder / "resolved.yaml").write_text(RESOLVED)
    lines = ["step,train/loss,train/samples_per_s,lr/dense,lr/sparse,val/auc,val/log_loss"]
    lines += ["10,0.7,100000,0.1,0.5,,", "10,,,,,0.71,0.61", "20,0.5,120000,0.05,0.25,,", "20,,,,,0.8371,0.45"]
    (folder / "logs" / "metrics.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_a_page_shows_what_the_run_reached(run_dir: Path) -> None:
    words = checked(page(run_dir, SUMMARY))
    for part in (
        "run & one done",
        "AUC 0.8371 attainable 0.8436",
        "log loss 0.4500 on 5.0 k samples",
        "samples/s 125.0 k 16.0 ms a step",
        "Validation AUC attainable 0.8436",
        "Learning rate",
        "step 20: 0.8371",
        "user 100 \u00d7 8 row_wise reference",
        "rank 1: 1.6 KiB",
        "table 'a': reference instead of <fbgemm>",
        "torch 2.13.0",
        "# <b>",
    ):
        assert part in words, part
    assert "Validation normalized entropy" not in words  # it was not logged


def test_a_plan_of_many_ranks_has_no_row_for_each(run_dir: Path) -> None:
    tables = [TableSpec("user", 3000, 8, ("user",))]
    write_plan(run_dir / "plan.json", plan_for(tables, ShardingType.ROW_WISE, 300, "reference"))
    words = checked(page(run_dir, SUMMARY))
    assert "ranks 0 to 299" in words
    assert "300 ranks hold 320 B at most, 320 B on average, 320 B at least." in words


def test_ranks_that_hold_equally_much_are_one_square_where_there_are_many(run_dir: Path) -> None:
    tables = [TableSpec("user", 1280, 8, ("user",))]
    write_plan(run_dir / "plan.json", plan_for(tables, ShardingType.ROW_WISE, 128, "reference"))
    text = page(run_dir, SUMMARY)
    assert "rank 0 to 127: 320 B" in checked(text)
    assert text.count("<rect") == 1


def test_a_run_that_failed_before_it_began_has_a_page(tmp_path: Path) -> None:
    write_facts(tmp_path, RunFacts(2, "2 ZionEX accelerators", "2 CPU processes (gloo)", "c0ffee"))
    complete_summary(tmp_path, Status.FAILED, error="rank 1 failed: <no> data")
    words = checked((tmp_path / PAGE).read_text())
    for part in (
        "failed",
        "rank 1 failed: <no> data",
        "Nothing was measured.",
        "Nothing was logged as CSV",
        "There is no plan.",
        "None: everything ran as it was asked for.",
    ):
        assert part in words, part


def test_a_page_that_cannot_be_made_spoils_no_run(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_page(run_dir, {**SUMMARY, "val": 3})
    assert not (run_dir / PAGE).exists()
    assert capsys.readouterr().err.startswith(f"{run_dir / PAGE} cannot be written: AttributeError: ")


def test_rows_of_one_step_are_joined_and_broken_ones_passed_over(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "metrics.csv").write_text("a,b,step\n2,,1\n,3,1\nx,nan,2\n5,,\n4,inf,0\n")
    history = read_history(tmp_path)
    assert history.series == {"a": ((0.0, 4.0), (1.0, 2.0)), "b": ((1.0, 3.0),)}
    assert history.names("b") == ["b"]
    assert history.points("c") == ()


def test_a_long_history_is_thinned_to_its_last_point(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "metrics.csv").write_text("step,a\n" + "".join(f"{n},{n}\n" for n in range(2501)))
    points = read_history(tmp_path).points("a")
    assert len(points) <= 1001
    assert (points[0], points[-1]) == ((0.0, 0.0), (2500.0, 2500.0))


@pytest.mark.parametrize(
    ("points", "limit", "expected"),
    [
        ([(0, 0.0)], None, ["0"]),
        ([(10, 0.7), (147, 0.84)], 0.85, ["0.70", "0.75", "0.85", "140"]),
        ([(1, 3.0), (2, 3.0)], None, ["3.0"]),
        ([(0, 26_000.0), (90_000, 35_400.0)], None, ["26 k", "34 k", "80 k"]),
        ([(0, 1e-5), (5, 9e-5)], None, ["0.00002", "0.00008"]),
        ([(0, -1e9), (3e6, 2e9)], None, ["-1.0 G", "2.0 G", "3.0 M"]),
    ],
)
def test_axes_have_round_numbers_inside_the_picture(
    points: list[tuple[float, float]], limit: float | None, expected: list[str]
) -> None:
    drawn = draw(Chart("<x>", [Line("", points)], limit, "best"))
    assert "<x>" not in drawn and "nan" not in drawn
    texts = re.findall(r'<text class="[xy]"[^>]*>([^<]*)</text>', drawn)
    assert set(expected) <= set(texts), texts
    heights = [float(y) for y in re.findall(r'class="y" x="[\d.]+" y="([\d.]+)"', drawn)]
    assert all(later + 12 < earlier for earlier, later in pairwise(heights))  # none overlap
    places = re.findall(r'cx="([-\d.]+)" cy="([-\d.]+)"', drawn)
    assert all(58 <= float(x) <= 504 and 14 <= float(y) <= 202 for x, y in places)
    assert checked(drawn)


def test_a_chart_without_points_is_none() -> None:
    assert draw(Chart("x", [Line("a", [])])) == ""


def test_the_summary_of_a_run_comes_with_its_page(run_dir: Path) -> None:
    (run_dir / "summary.json").write_text(json.dumps(SUMMARY))
    complete_summary(run_dir, Status.DONE)
    assert "AUC 0.8371" in checked((run_dir / PAGE).read_text())
