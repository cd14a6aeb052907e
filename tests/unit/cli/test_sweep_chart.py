"""The page and the table of a sweep, from rows that are made up."""

import re
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console

from neo.cli.sweep_chart import chart_svg, write_chart
from neo.cli.sweep_rows import Row, RowStatus
from neo.cli.sweep_table import print_table, shown_value
from neo.config.purpose import Purpose

_SVG = "{http://www.w3.org/2000/svg}"
ERROR = "rank 1 failed: <script>alert('table & feature')</script> " + "and so on " * 30


def _row(number: int, auc: float, speed: float) -> Row:
    swept = (("sharding", "row_wise"), ("optim.sparse.lr", f"0.{number}"))
    values = {"auc": auc, "ne": 0.9, "samples_per_s": speed, "steps": 10}
    return Row(number, swept, RowStatus.DONE, Path(f"sweep/{number}"), values)


def _rows() -> list[Row]:
    swept = (("sharding", "auto"), ("optim.sparse.lr", "0.5"))
    failed = Row(2, swept, RowStatus.FAILED, Path("sweep/2"), {}, ERROR)
    infeasible = Row(3, swept, RowStatus.INFEASIBLE, Path("sweep/3"), {}, "no plan fits: too large")
    return [_row(0, 0.7, 1000), _row(1, 0.8, 4000), failed, infeasible]


def test_every_point_is_drawn_in_its_place() -> None:
    drawing = ElementTree.fromstring(chart_svg(Purpose.TRAIN, _rows()))
    texts = [node.text or "" for node in drawing.iter(f"{_SVG}text")]
    assert texts[:3] == ["auc", "ne", "samples/s"]
    assert [text for text in texts if text in set(RowStatus)] == ["done", "done", "failed", "infeasible"]
    assert "0  sharding=row_wise optim.sparse.lr=0.0" in texts
    bars = [float(node.get("width", "0")) for node in drawing.iter(f"{_SVG}rect")]
    assert bars == [27.5, 110.0]  # 1,000 and 4,000 samples/s on one axis from 0
    dots = [node for node in drawing.iter(f"{_SVG}circle") if node.get("cx")]
    auc, ne = dots[::2], dots[1::2]
    assert float(auc[1].get("cx", "0")) - float(auc[0].get("cx", "0")) == 110.0
    assert auc[0].get("fill") != auc[1].get("fill")  # The better one is dark,
    assert ne[0].get("fill") == ne[1].get("fill")  # and none of two that are equal.
    assert ne[0].get("cx") == ne[1].get("cx")


def test_the_page_is_self_contained_and_quotes_what_it_shows(tmp_path: Path) -> None:
    page = write_chart(Purpose.TRAIN, _rows(), tmp_path).read_text()
    assert re.findall(r"https?://[^\"]+", page) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"<script|<link|<img|@import|url\(", page)
    assert "&lt;script&gt;alert(&#x27;table &amp; feature&#x27;)" in page
    assert "2 done, 1 failed, 1 infeasible." in page
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.html"]


def test_a_sweep_without_any_figure_is_drawn_too() -> None:
    rows = [Row(0, (), RowStatus.NOT_STARTED, Path("sweep/0"), {}, "the sweep was interrupted by SIGINT")]
    texts = [node.text for node in ElementTree.fromstring(chart_svg(Purpose.PLAN, rows)).iter(f"{_SVG}text")]
    assert texts == ["0  ", "not started", "the sweep was interrupted by SIGINT"]


def test_the_table_fits_the_terminal_and_errors_stand_below() -> None:
    def printed(width: int) -> list[str]:
        text = StringIO()
        print_table(Purpose.TRAIN, _rows(), Path("sweep"), console=Console(file=text, width=width, color_system=None))
        return text.getvalue().splitlines()

    assert max(map(len, printed(80))) <= 80
    lines = printed(100)
    assert lines[1].split() == ["sharding", "optim.sparse.lr", "status", "auc", "ne", "samples/s", "steps", "folder"]
    assert ["row_wise", "0.1", "done", "0.80000", "0.90000", "4,000", "10", "1"] in [line.split() for line in lines]
    assert lines[-1] == "point 3 infeasible: no plan fits: too large"
    below = " ".join(lines)
    assert "point 2 failed: rank 1 failed: <script>alert('table & feature')</script> and so on" in below
    assert "…" in below  # The whole of it is in sweep.csv.


def test_values_are_shown_with_their_units() -> None:
    assert shown_value("step_time_s", 0.0123) == "12.3 ms"
    assert shown_value("hbm_bytes", 2048) == "2.0 KiB"
    assert shown_value("imbalance", 1.2345) == "1.23"
