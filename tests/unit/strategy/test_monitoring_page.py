"""The code of docs/monitoring.md, run as it stands there, and the names that the page gives."""

import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console

from neo.config.purpose import Purpose
from neo.config.resolve import resolve_content
from neo.sharded.stages import Stage
from neo.strategy.callback_options import CALLBACKS, MAXIMIZED
from neo.strategy.logger_options import LOGGERS
from neo.strategy.loggers import make_loggers
from neo.strategy.watching import watching_callbacks

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "monitoring.md").read_text(encoding="utf-8")


@pytest.fixture
def _modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, code in re.findall(r"```python (\w+\.py)\n(.*?)```", PAGE, re.DOTALL):
        (tmp_path / name).write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    kept = [dict(registry._targets) for registry in (LOGGERS, CALLBACKS)]
    yield
    for registry, targets in zip((LOGGERS, CALLBACKS), kept, strict=True):
        registry._targets = targets
    for name in ("my_watch", "my_plugin"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("_modules")
def test_the_callback_and_the_logger_of_the_page_are_chosen_by_name(tmp_path: Path) -> None:
    import my_plugin  # type: ignore[import-not-found]

    my_plugin.plugin()
    content = {
        "hardware": {"name": "local", "detect": True},
        "callbacks": {"own": ["gradient_norm"], "options": {"gradient_norm": {"every": 2}}},
        "logger": {"names": ["lines"], "options": {"lines": {"folder": "mine"}}},
    }
    config = resolve_content(content, purpose=Purpose.TRAIN)
    (logger,) = make_loggers(config.logger, tmp_path, rank=0)
    (callback,) = watching_callbacks(config, tmp_path, Console())
    layer = torch.nn.Linear(2, 1)
    layer(torch.ones(1, 2)).sum().backward()
    trainer = type("Trainer", (), {"global_step": 4, "loggers": [logger]})()
    callback.on_before_optimizer_step(trainer, layer, None)  # type: ignore[arg-type]
    logger.finalize("success")
    with (tmp_path / "mine" / "metrics.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row["gradient_norm"]) == pytest.approx(3**0.5)  # of two weights and a bias, each 1


def test_the_page_names_every_stage_metric_and_logger() -> None:
    names = [*Stage, *MAXIMIZED, *LOGGERS]
    assert [name for name in names if f"`{name}" not in PAGE and name not in PAGE] == []
