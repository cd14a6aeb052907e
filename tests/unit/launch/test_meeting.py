"""Ranks of a job that something else started wait for rank 0."""

import re
import threading
import time
from pathlib import Path

import pytest

from neo.errors import NeoError
from neo.launch import meeting
from neo.launch.environment import RankEnvironment
from neo.launch.meeting import announce, await_announcement, forget, signs_of_life

RANKS = RankEnvironment("torchrun", "torchrun-x", 1, 2, 2, {})


def test_the_announcement_reaches_the_others(tmp_path: Path) -> None:
    announce(tmp_path, RANKS, 3)
    assert await_announcement(tmp_path, RANKS) == 3


def test_what_another_attempt_announced_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    announce(tmp_path, RANKS, 0)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    text = (
        f"rank 1: rank 0 has shown no sign of life in {tmp_path} for 0 s; it has ended (see its own message), or the "
        "nodes do not see one file system: name a shared folder with hydra.run.dir=DIR"
    )
    with pytest.raises(NeoError, match=re.escape(text)):
        await_announcement(tmp_path, RANKS, silence_s=0.3)


def test_a_rank_waits_as_long_as_rank_0_shows_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "_BEAT_S", 0.05)

    def prepare() -> None:
        with signs_of_life(tmp_path, RANKS):
            time.sleep(1.0)
        announce(tmp_path, RANKS, 0)

    rank_0 = threading.Thread(target=prepare)
    rank_0.start()
    assert await_announcement(tmp_path, RANKS, silence_s=0.5) == 0
    rank_0.join()
    assert [path.suffix for path in tmp_path.iterdir()] == [".txt"]


def test_old_announcements_are_forgotten(tmp_path: Path) -> None:
    announce(tmp_path, RANKS, 0)
    forget(tmp_path)
    assert list(tmp_path.iterdir()) == []
