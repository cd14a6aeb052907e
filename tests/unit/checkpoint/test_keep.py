"""What stays of a run's checkpoints: whatever is removed, links and complete checkpoints stay whole."""

from pathlib import Path

import pytest

from neo.checkpoint.folder import complete_checkpoints, file_entry, step_name
from neo.checkpoint.keep import Keep, move_aside, record_validation, remove_drafts, tidy, would_be_kept
from neo.checkpoint.manifest import Facts, Manifest, read_manifest, write_manifest


def save(folder: Path, step: int, log_loss: float | None = None) -> Path:
    """Make a complete checkpoint with one file."""
    path = folder / step_name(step)
    path.mkdir(parents=True)
    (path / "tables.bin").write_bytes(b"x" * step)
    val = None if log_loss is None else {"log_loss": log_loss, "auc": 1 - log_loss}
    files = {"tables.bin": file_entry(path / "tables.bin")}
    write_manifest(path, Manifest(Facts(step, val=val), 1, (), files, {}))
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_and_the_best_stay(tmp_path: Path) -> None:
    for step, loss in ((10, 0.5), (20, 0.3), (30, 0.4), (40, None), (50, float("nan")), (60, 0.6)):
        save(tmp_path, step, loss)
    tidy(tmp_path, Keep(last=2, best=1, monitor="log_loss"))
    assert names(tmp_path) == ["best", "last", "step_000020", "step_000050", "step_000060"]
    assert (tmp_path / "last").readlink() == Path("step_000060")
    assert (tmp_path / "best").readlink() == Path("step_000020")
    save(tmp_path, 70, 0.2)
    tidy(tmp_path, Keep(last=1, best=1, monitor="log_loss"))
    assert names(tmp_path) == ["best", "last", "step_000070"]
    assert (tmp_path / "best").readlink() == Path("step_000070")


def test_without_a_monitor_only_the_newest_stay_and_null_keeps_all(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step, 0.1 * step)
    tidy(tmp_path, Keep(last=None, best=1, monitor=None))
    assert names(tmp_path) == ["last", "step_000001", "step_000002", "step_000003"]
    tidy(tmp_path, Keep(last=1, best=1, monitor=None))
    assert names(tmp_path) == ["last", "step_000003"]


def test_more_is_better_for_some_metrics_and_less_for_others(tmp_path: Path) -> None:
    save(tmp_path, 1, 0.3)
    assert would_be_kept(tmp_path, Keep(1, 1, "log_loss"), 0.2)
    assert not would_be_kept(tmp_path, Keep(1, 1, "log_loss"), 0.3)
    assert would_be_kept(tmp_path, Keep(1, 2, "log_loss"), 0.4)
    assert would_be_kept(tmp_path, Keep(1, 1, "auc"), 0.8)
    assert not would_be_kept(tmp_path, Keep(1, 1, "auc"), 0.6)
    assert not would_be_kept(tmp_path, Keep(1, 1, "auc"), None)
    assert not would_be_kept(tmp_path, Keep(1, 1, "auc"), float("nan"))
    assert not would_be_kept(tmp_path, Keep(1, 1, None), 0.9)


def test_a_removal_that_is_broken_off_leaves_no_half_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = save(tmp_path, 1), save(tmp_path, 2)

    def killed(path: Path, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("neo.checkpoint.keep.shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        tidy(tmp_path, Keep(1, 1, None))
    monkeypatch.undo()
    assert not first.exists()
    assert complete_checkpoints(tmp_path) == [second]
    assert (tmp_path / "last").resolve() == second
    remove_drafts(tmp_path)
    assert names(tmp_path) == ["last", "step_000002"]


def test_drafts_are_removed_and_a_checkpoint_that_was_being_replaced_comes_back(tmp_path: Path) -> None:
    save(tmp_path, 3).rename(tmp_path / ".step_000003.old")
    save(tmp_path, 4)
    for name in (".step_000004.old", ".step_000005.saving", "mine"):
        (tmp_path / name).mkdir()
    remove_drafts(tmp_path)
    assert names(tmp_path) == ["mine", "step_000003", "step_000004"]
    remove_drafts(tmp_path / "nowhere")


def test_checkpoints_are_moved_aside_never_over_others(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    assert move_aside(folder) is None
    for number in (1, 2):
        save(folder, 7)
        assert move_aside(folder) == tmp_path / f"checkpoints_before_{number}"
        assert not folder.exists()
    for step in (7, 8, 9):
        save(folder, step)
    moved = move_aside(folder, newer_than=7)
    assert moved is not None
    assert (names(moved), names(folder)) == (["step_000008", "step_000009"], ["step_000007"])
    assert move_aside(folder, newer_than=7) is None


def test_a_later_validation_is_written_into_the_checkpoint(tmp_path: Path) -> None:
    path = save(tmp_path, 5)
    record_validation(tmp_path, 5, {"auc": 0.7})
    record_validation(tmp_path, 6, {"auc": 0.7})
    assert read_manifest(path).facts.val == {"auc": 0.7}
    assert complete_checkpoints(tmp_path) == [path]
    assert names(tmp_path) == ["step_000005"]


def test_a_file_that_goes_while_it_is_looked_at_makes_the_checkpoint_incomplete(tmp_path: Path) -> None:
    path = save(tmp_path, 5)
    (path / "tables.bin").unlink()
    (path / "tables.bin").symlink_to("nowhere")
    assert complete_checkpoints(tmp_path) == []
