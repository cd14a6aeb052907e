"""``summary.json`` is complete whatever became of the run."""

import json
from pathlib import Path
from typing import Any

from neo.launch.summary import RunFacts, Status, complete_summary, write_facts

FACTS = RunFacts(2, "2 ZionEX accelerators", "2 CPU processes (gloo)", "c0ffee", "beef", ("fbgemm: absent",))


def _summary(run_dir: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run_dir / "summary.json").read_text())
    return content


def test_a_failed_run_has_every_key(tmp_path: Path) -> None:
    write_facts(tmp_path, FACTS)
    complete_summary(tmp_path, Status.FAILED, error="rank 1 failed")
    summary = _summary(tmp_path)
    assert summary["status"] == "failed"
    assert summary["error"] == "rank 1 failed"
    assert summary["planned_for"] == "2 ZionEX accelerators"
    assert summary["plan_fingerprint"] == "beef"
    assert summary["fallbacks"] == ["fbgemm: absent"]
    for key in (
        "steps",
        "samples",
        "samples_per_s",
        "step_time_s",
        "train_loss",
        "val",
        "data",
        "traffic_bytes_per_step",
    ):
        assert summary[key] is None
    assert summary["versions"]["torch"]


def test_what_rank_0_knew_last_is_the_measure_of_a_broken_run(tmp_path: Path) -> None:
    write_facts(tmp_path, FACTS)
    (tmp_path / "progress.json").write_text(json.dumps({"steps": 7, "val": {"auc": 0.8}, "train_loss": None}))
    complete_summary(tmp_path, Status.INTERRUPTED, error="stopped")
    summary = _summary(tmp_path)
    assert (summary["status"], summary["steps"], summary["val"]) == ("interrupted", 7, {"auc": 0.8})
    assert summary["train_loss"] is None
    assert not (tmp_path / "progress.json").exists()
    assert summary["plan_fingerprint"] == "beef"
    (tmp_path / "summary.json").write_text(json.dumps({"status": "done", "steps": 9}))
    complete_summary(tmp_path, Status.FAILED)
    assert _summary(tmp_path)["steps"] == 9  # the whole summary comes first


def test_what_rank_0_measured_stays(tmp_path: Path) -> None:
    write_facts(tmp_path, FACTS)
    measured = {"status": "done", "steps": 7, "val": None, "fallbacks": ["cache off", "fbgemm: absent"], "extra": 1}
    (tmp_path / "summary.json").write_text(json.dumps(measured))
    complete_summary(tmp_path, Status.DONE)
    summary = _summary(tmp_path)
    assert (summary["status"], summary["steps"], summary["val"], summary["extra"]) == ("done", 7, None, 1)
    assert summary["fallbacks"] == ["fbgemm: absent", "cache off"]
    assert summary["world_size"] == 2


def test_a_run_that_fails_after_its_summary_is_failed(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"status": "done", "steps": 7}')
    complete_summary(tmp_path, Status.INTERRUPTED, error="ended by SIGINT")
    assert _summary(tmp_path)["status"] == "interrupted"
