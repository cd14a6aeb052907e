"""The first cause of a failed run is found among what its ranks left."""

from pathlib import Path

import pytest

from neo.errors import DataError
from neo.launch.failures import ProcessEnd, describe_failure, write_process_ends, write_rank_failure


def _raise(run_dir: Path, rank: int, error: Exception, at_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neo.launch.failures.time.time", lambda: at_s)
    write_rank_failure(run_dir, rank, error)


def _ends(run_dir: Path, *ends: tuple[int, int, float]) -> None:
    write_process_ends(run_dir, {rank: ProcessEnd(rank, code, at) for rank, code, at in ends})


def test_the_earliest_error_is_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _raise(tmp_path, 0, RuntimeError("Connection closed by peer"), 100.2, monkeypatch)
    _raise(tmp_path, 1, ValueError("boom"), 100.1, monkeypatch)
    _ends(tmp_path, (0, 1, 100), (1, 1, 100))
    assert describe_failure(tmp_path).splitlines()[-1] == "rank 1 failed: ValueError: boom"


def test_an_error_on_purpose_has_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _raise(tmp_path, 1, DataError("day_3.csv, line 7: 'x' is no number"), 100.0, monkeypatch)
    assert describe_failure(tmp_path) == "rank 1 failed: day_3.csv, line 7: 'x' is no number"


def test_a_killed_rank_comes_before_the_ranks_that_lost_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _raise(tmp_path, 0, RuntimeError("Connection closed by peer"), 100.3, monkeypatch)
    _ends(tmp_path, (0, 1, 100), (1, -11, 100))
    assert describe_failure(tmp_path) == "rank 1 was killed by SIGSEGV"


def test_a_rank_that_had_to_be_killed_afterwards_is_no_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _raise(tmp_path, 0, ValueError("boom"), 100.3, monkeypatch)
    _ends(tmp_path, (0, 1, 100), (1, -9, 120), (2, -15, 101))
    assert describe_failure(tmp_path).endswith("rank 0 failed: ValueError: boom")


def test_an_abort_is_a_reaction_unless_nothing_else_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _ends(tmp_path, (0, -6, 100), (1, -15, 101))
    assert describe_failure(tmp_path) == "rank 0 was killed by SIGABRT"
    _raise(tmp_path, 1, ValueError("boom"), 100.3, monkeypatch)
    assert describe_failure(tmp_path).endswith("rank 1 failed: ValueError: boom")


def test_no_trace_at_all(tmp_path: Path) -> None:
    assert describe_failure(tmp_path) == ""
