"""``neo export``: a checkpoint as one unsharded model that needs no neo to be read."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from neo.checkpoint.job import Job, Task
from neo.cli.arguments import scoring_parser
from neo.cli.reported import reported
from neo.cli.serving import open_checkpoint, start
from neo.config.from_checkpoint import Use, open_config
from neo.config.resolve import write_resolved
from neo.errors import ConfigError, Finding
from neo.tables.spec import WeightsDtype
from neo.units import format_bytes


def run_export(arguments: Sequence[str]) -> int:
    """Run ``neo export PATH --out FOLDER [key=value ...]`` and return its exit code.

    Returns:
        0 done; 2 arguments or configuration are wrong; 1 anything else.
    """
    return reported(lambda: _export(arguments))


def _export(arguments: Sequence[str]) -> int:
    description = "A checkpoint as one model, in safetensors."
    parser = scoring_parser("neo export", description, overrides="with --samples: ")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write; it must not exist, or be empty")
    parser.add_argument("--dtype", choices=[dtype.value for dtype in WeightsDtype], default="",
                        help="type of all tables; default: as they were trained")  # fmt: skip
    parser.add_argument("--samples", type=int, default=0, help="also write so many encoded validation samples")
    asked = parser.parse_intermixed_args(list(arguments))
    out = asked.out.absolute()
    _require(_mistakes(asked.out, asked.samples, asked.overrides))
    checkpoint = open_checkpoint(asked.path)
    use = Use.PREDICT if asked.samples else Use.EXPORT
    opened = open_config(checkpoint.path, asked.overrides, use=use, world_size=1)
    out.parent.mkdir(parents=True, exist_ok=True)
    work = out.with_name(f".{out.name}.{os.getpid()}.writing")  # beside the folder: it is renamed into its place
    try:
        model = work / "model"
        model.mkdir(parents=True)
        settled = {"data.global_batch_size": opened.run.data.training_batch_size, "trainer.accelerator": "cpu"}
        write_resolved(work / "resolved.yaml", opened.config, settled)
        job = Job(Task.EXPORT, checkpoint.path, model, dtype=asked.dtype, num_samples=asked.samples)
        start(job, run_dir=work, opened=opened, num_processes=1)
        if out.exists():
            out.rmdir()
        model.rename(out)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    files = [file for file in out.iterdir() if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    print(f"checkpoint: {checkpoint.path}")
    print(f"written: {asked.out}, {len(files)} files, {format_bytes(size)}")
    return 0


def _mistakes(out: Path, samples: int, overrides: Sequence[str]) -> list[Finding]:
    findings = []
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        findings.append(Finding("--out", f"'{out}' is there already", "name another folder, or remove it"))
    if samples < 0:
        findings.append(Finding("--samples", f"{samples} is below the limit 0"))
    if overrides and samples == 0:
        fix = "add --samples COUNT, or leave it out"
        findings += [Finding(text.partition("=")[0], "has no effect on the model", fix) for text in overrides]
    return findings


def _require(findings: Sequence[Finding]) -> None:
    if findings:
        raise ConfigError(findings)
