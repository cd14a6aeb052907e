"""A small ``train.py`` that saves at every step, to be killed and started again."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from neo.checkpoint.folder import complete_checkpoints, verify
from neo.checkpoint.manifest import read_manifest
from neo.checkpoint.store import load_rest, read_table

ROOT = Path(__file__).parents[2]
OVERRIDES = (
    "trainer.devices=2",
    "trainer.accelerator=cpu",
    "trainer.progress_bar=false",
    "model.num_embeddings=[50,60,70]",
    "optim.dense.name=adam",
    "optim.sparse.name=adagrad",
    "data.num_samples=2000",
    "data.val_samples=200",
    "data.global_batch_size=99",
    "sharding=row_wise",
    "checkpoint.every_n_steps=1",
    "checkpoint.keep_last=2",
)


@dataclass(frozen=True)
class Killed:
    """One start of the run: what was killed, and after which step that was on the disk."""

    target: str
    step: int


def start(run_dir: Path, epochs: int) -> "subprocess.Popen[str]":
    """Start or resume the run."""
    command = [sys.executable, str(ROOT / "train.py"), *OVERRIDES, "checkpoint.resume=auto", f"hydra.run.dir={run_dir}"]
    return subprocess.Popen(
        [*command, f"trainer.max_epochs={epochs}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def processes_of(run_dir: Path) -> dict[int, str]:
    """Return the engine and the workers of a run, by process id, with their command lines."""
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                state = (path / "stat").read_text().rpartition(")")[2].split()[0]
                line = (path / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            if state != "Z" and str(run_dir) in line:
                found[int(path.name)] = line
    return found


def kill_at_random(process: "subprocess.Popen[str]", run_dir: Path, choice: random.Random, after: int) -> Killed | None:
    """Kill a rank, the launcher or everything, a random moment after step ``after``; None if the run ended before.

    Every process of the run must be gone 5 s later.
    """
    wait_for_step(process, run_dir, after)
    time.sleep(choice.uniform(0, 0.5))
    if process.poll() is not None:
        return None
    target = choice.choice(["rank", "launcher", "all"])
    others = [
        pid for pid, line in processes_of(run_dir).items() if "neo.launch.worker" in line and "elastic" not in line
    ]
    pids = {"rank": others[:1], "launcher": [process.pid], "all": [*processes_of(run_dir), process.pid]}[target]
    step = newest_step(run_dir)
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    if target == "rank":
        process.wait(timeout=60)
    until = time.monotonic() + 5
    while left := {pid: line for pid, line in processes_of(run_dir).items() if pid != process.pid}:
        assert time.monotonic() < until, f"{target} was killed, and these still live: {left}"
        time.sleep(0.05)
    process.communicate(timeout=60)
    return Killed(target, step)


def wait_for_step(process: "subprocess.Popen[str]", run_dir: Path, step: int) -> None:
    """Return when a checkpoint of a step is there, or the run has ended."""
    until = time.monotonic() + 120
    while newest_step(run_dir) < step and process.poll() is None:
        assert time.monotonic() < until, f"no checkpoint of step {step}"
        time.sleep(0.02)


def newest_step(run_dir: Path) -> int:
    """Return the step of the newest complete checkpoint, 0 without one."""
    saved = complete_checkpoints(run_dir / "checkpoints")
    return int(saved[-1].name.removeprefix("step_")) if saved else 0


def content(checkpoint: Path) -> dict[str, Any]:
    """Return tables and dense part of an undamaged checkpoint."""
    verify(checkpoint)
    tables = {entry.key: read_table(checkpoint, entry) for entry in read_manifest(checkpoint).tables}
    dense: dict[str, Any] = load_rest(checkpoint)["state_dict"]
    return tables | dense


def differing(one: Path, other: Path) -> list[str]:
    """Return the names of the tensors in which two checkpoints differ by any bit."""
    ours, theirs = content(one), content(other)
    assert ours.keys() == theirs.keys()
    return [name for name, tensor in ours.items() if not torch.equal(tensor, theirs[name])]
