"""Killed at random moments, a run goes on from its newest checkpoint and ends as if nothing had happened."""

import json
import random
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from integration.killed_run import differing, kill_at_random, newest_step, start, wait_for_step
from integration.run_parent import train
from neo.config.resolve import read_resolved
from worker_pool import WorkerPool

BATCHES = 21  # of an epoch
LONG_KILLS, LONG_EPOCHS = 20, 40


def test_killed_at_random_moments_it_ends_bit_equal(
    worker_pool: WorkerPool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Kill a rank, the launcher or all, and go on; with ``--long`` 20 times, and then once with SIGTERM."""
    long = bool(request.config.getoption("--long"))
    epochs, num_kills = (LONG_EPOCHS, LONG_KILLS) if long else (2, 1)
    run_dir, whole = tmp_path / "run", tmp_path / "whole"
    choice = random.Random()
    kills = []
    for _ in range(num_kills):
        after = newest_step(run_dir) + choice.randrange(1, 4)
        killed = kill_at_random(start(run_dir, epochs), run_dir, choice, after=after)
        kills.append(killed)
        assert newest_step(run_dir) >= (0 if killed is None else killed.step), kills
    if long:
        print(kills)
        assert None not in kills, "the run was too short to be killed so often"
        _preempt(run_dir, epochs)
    process = start(run_dir, epochs)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, (kills, errors)
    _train_at_once(worker_pool, run_dir, whole)
    summary, other = (json.loads((folder / "summary.json").read_text()) for folder in (run_dir, whole))
    assert (summary["status"], summary["steps"], summary["samples"]) == ("done", epochs * BATCHES, epochs * 2_000)
    assert summary["val"] == other["val"]
    last = f"checkpoints/step_{epochs * BATCHES:06d}"
    assert differing(run_dir / last, whole / last) == [], kills
    assert not list((run_dir / "checkpoints").glob(".*"))


def _preempt(run_dir: Path, epochs: int) -> None:
    process = start(run_dir, epochs)
    wait_for_step(process, run_dir, newest_step(run_dir) + 1)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    summary = json.loads((run_dir / "summary.json").read_text())
    assert (summary["status"], summary["checkpoint"]) == ("preempted", f"checkpoints/step_{summary['steps']:06d}")


def _train_at_once(pool: WorkerPool, run_dir: Path, whole: Path) -> None:
    """Train the same without a break, saving only the end."""
    whole.mkdir()
    shutil.copytree(run_dir / "data_schema", whole / "data_schema")
    shutil.copy(run_dir / "plan.json", whole)
    config = read_resolved(run_dir / "resolved.yaml")
    config = replace(config, checkpoint=replace(config.checkpoint, resume=None, every_n_steps=None))
    pool.run(2, train, config, whole, timeout_s=240)
