"""``strict=true``: what the planner replaces is a mistake in the configuration."""

from typing import Any

import pytest

from neo.cli.planning import plan_tables
from neo.config.purpose import Purpose
from neo.config.resolve import resolve_content
from neo.errors import ConfigError
from neo.ops.spec import Device
from neo.tables.spec import TableSpec

TABLES = {"model.embeddings.user": TableSpec("user", 100, 8, ("user",))}


def _plan(strict: bool, sharding: str) -> Any:
    content = {
        "strict": strict,
        "hardware": {"name": "local", "detect": True, "accelerators_per_node": 2},
        "sharding": {"type": sharding},
    }
    run = resolve_content(content, purpose=Purpose.PLAN)
    return plan_tables(run, TABLES, device=Device.CPU)


def test_strict_refuses_what_the_planner_replaces(monkeypatch: pytest.MonkeyPatch) -> None:
    fallbacks = _plan(False, "column_wise").fallbacks  # column shards of a row-wise optimizer share their state
    assert len(fallbacks) == 1
    assert "reference" in fallbacks[0]
    with pytest.raises(ConfigError) as error:
        _plan(True, "column_wise")
    assert [str(finding) for finding in error.value.findings] == [
        f"strict: true refuses a fallback: {fallbacks[0]}; ask for what runs, or leave strict out"
    ]
    assert error.value.exit_code == 2


def test_strict_says_nothing_where_nothing_is_replaced() -> None:
    assert _plan(True, "table_wise").fallbacks == ()
