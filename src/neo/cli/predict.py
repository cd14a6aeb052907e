"""``neo predict``: a score for every sample, in the order of the data, as one Parquet file."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from neo.checkpoint.job import Job, Task
from neo.cli.arguments import scoring_parser
from neo.cli.reported import reported
from neo.cli.serving import open_checkpoint, score
from neo.config.from_checkpoint import Use
from neo.data.scores import join_parts, part_name, places_of
from neo.data.spec import Split
from neo.errors import ConfigError, Finding
from neo.units import format_count


def run_predict(arguments: Sequence[str]) -> int:
    """Run ``neo predict PATH --out FILE.parquet [key=value ...]`` and return its exit code.

    Returns:
        0 done; 2 arguments or configuration are wrong; 3 the tables do not fit; 1 anything else.
    """
    return reported(lambda: _predict(arguments))


def _predict(arguments: Sequence[str]) -> int:
    parser = scoring_parser("neo predict", "Scores of samples; labels are not read.")
    parser.add_argument(
        "--out", type=Path, required=True, help="the Parquet file to write; an existing one is replaced"
    )
    asked = parser.parse_intermixed_args(list(arguments))
    out = asked.out.absolute()
    if out.is_dir():
        raise ConfigError([Finding("--out", f"'{asked.out}' is a folder", "name a file, like scores.parquet")])
    checkpoint = open_checkpoint(asked.path)
    out.parent.mkdir(parents=True, exist_ok=True)
    # Beside the file, so that it can be renamed into its place.
    run_dir = out.with_name(f".{out.name}.{os.getpid()}.writing")
    try:
        parts = run_dir / "parts"
        parts.mkdir(parents=True)
        job = Job(Task.PREDICT, checkpoint.path, parts)
        opened = score(checkpoint, asked.overrides, job, use=Use.PREDICT, run_dir=run_dir)
        written = [parts / part_name(rank) for rank in range(opened.num_processes)]
        num_rows = join_parts(written, run_dir / "scores", places_of(opened.run.data, Split.VAL))
        (run_dir / "scores").replace(out)
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)
    print(f"written: {asked.out}, {format_count(num_rows)} scores")
    return 0
