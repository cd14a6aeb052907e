"""Ranks of a job that something else started wait for rank 0."""

import re
from pathlib import Path

import pytest

from neo.errors import NeoError
from neo.launch.environment import RankEnvironment
from neo.launch.meeting import announce, await_announcement, forget

RANKS = RankEnvironment("torchrun", "torchrun-x", 1, 2, 2, {})


def test_the_announcement_reaches_the_others(tmp_path: Path) -> None:
    announce(tmp_path, RANKS, 3)
    assert await_announcement(tmp_path, RANKS) == 3


def test_what_another_attempt_announced_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    announce(tmp_path, RANKS, 0)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    text = (
        f"rank 1: rank 0 has not filled {tmp_path} within 0 s; all nodes have to see one file system: "
        "name a shared folder with hydra.run.dir=DIR"
    )
    with pytest.raises(NeoError, match=re.escape(text)):
        await_announcement(tmp_path, RANKS, patience_s=0.3)


def test_old_announcements_are_forgotten(tmp_path: Path) -> None:
    announce(tmp_path, RANKS, 0)
    forget(tmp_path)
    assert list(tmp_path.iterdir()) == []
