"""Samples per second that one core reads from Parquet, beside pyarrow reading the same columns and nothing else.

26 categorical and 13 dense columns, shuffled, with nulls, ids checked against their tables. Each case takes turns with
the plain reading, run by run. Times are CPU time of the whole process, so that neither a second core nor a neighbour
makes a figure better or worse.
"""

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from neo.data.loader import GlobalBatchLoader
from neo.data.spec import DataConfig, DataSpec
from neo.data.vocabulary import learn_schema

NUM_CATEGORICAL, NUM_DENSE = 26, 13
CATEGORICAL = [f"c{index}" for index in range(NUM_CATEGORICAL)]
DENSE = [f"d{index}" for index in range(NUM_DENSE)]
TABLE_ROWS = (100_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 100_000, 100_000, 100_000, 10)
TABLE_ROWS += (2_209, 11_938, 155, 4, 976, 14, 100_000, 100_000, 100_000, 100_000, 12_973, 108, 36)
BATCH = 2048


@dataclass(frozen=True)
class Case:
    """How ids are stored and become rows, and the samples per second that a core has to read."""

    name: str
    stored: str
    encoding: str
    target: float | None


CASES = (
    Case("whole numbers, identity", "int32", "identity", 1_000_000),
    Case("whole numbers, hash", "int32", "hash", None),
    Case("whole numbers, vocabulary", "int32", "vocabulary", None),
    Case("text, vocabulary", "string", "vocabulary", 400_000),
    Case("text, hash", "string", "hash", None),
)


def write_file(path: Path, num_samples: int, stored: str) -> None:
    """Write samples with Zipf-like ids, 2 % of them and of the dense values null, in row groups of 131,072."""
    rng = np.random.default_rng(0)
    columns: dict[str, pa.Array] = {"label": pa.array(rng.integers(0, 2, num_samples, dtype=np.int8))}
    for name in DENSE:
        values = rng.integers(0, 1000, num_samples).astype(np.float32)
        columns[name] = pa.array(values, mask=rng.random(num_samples) < 0.02)
    for name, rows in zip(CATEGORICAL, TABLE_ROWS, strict=True):
        ids = np.floor((rows + 1) ** rng.random(num_samples) - 1).astype(np.int32)  # density 1 / (id + 1)
        absent = rng.random(num_samples) < 0.02
        if stored == "string":
            texts = np.char.mod("%08x", np.arange(rows, dtype=np.uint64) * 2654435761 % 2**32)
            columns[name] = pa.array(texts).take(pa.array(ids, mask=absent))
        else:
            columns[name] = pa.array(ids, mask=absent)
    pq.write_table(pa.table(columns), path, row_group_size=131_072)


def plain(path: Path) -> None:
    """Read the same columns with pyarrow alone."""
    with pq.ParquetFile(path) as opened:
        for _ in opened.iter_batches(65_536, columns=["label", *DENSE, *CATEGORICAL]):
            pass


def spec_of(path: Path, encoding: str, transform: str) -> DataSpec:
    """Return the configuration of a case."""
    config = DataConfig(
        name="parquet",
        path=str(path),
        label="label",
        dense=DENSE,
        categorical=CATEGORICAL,
        encoding=encoding,
        dense_transform=transform,
        num_workers=0,
    )
    assert config.validate() == []
    return config.to_spec()


def cpu_seconds(work: Callable[[], None]) -> float:
    """Return the CPU time that the process spends on ``work``, all threads together."""
    began = time.process_time()
    work()
    return time.process_time() - began


def measure(case: Case, path: Path, num_samples: int, repeats: int, transform: str) -> tuple[float, float]:
    """Return samples per second of CPU time of the loader and of the plain reading: medians."""
    spec = spec_of(path, case.encoding, transform)
    rows = list(TABLE_ROWS) if case.encoding == "identity" else None
    with tempfile.TemporaryDirectory() as folder:
        schema = learn_schema(spec, num_embeddings=rows, pooling_factors=None, seed=0, folder=Path(folder))
        loader = GlobalBatchLoader(
            spec, schema, split="train", global_batch_size=BATCH, rank=0, world_size=1, seed=0, limit_samples=None
        )

        def load() -> None:
            assert sum(batch.batch_size for batch in loader) == num_samples

        load()
        both = [(cpu_seconds(load), cpu_seconds(lambda: plain(path))) for _ in range(repeats)]
    ours, theirs = (statistics.median(times) for times in zip(*both, strict=True))
    return num_samples / ours, num_samples / theirs


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 0 if every target is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1_048_576)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dense-transform", default="log1p", choices=("log1p", "standardize", "none"))
    parser.add_argument("--short", action="store_true", help="show that it runs: no target is checked")
    asked = parser.parse_args(arguments)
    samples, repeats = (50_000, 1) if asked.short else (asked.samples, asked.repeats)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores; Python {platform.python_version()}")
    print(", ".join(f"{name} {metadata.version(name)}" for name in ("numpy", "pyarrow", "torch")))
    print(f"{samples:,} samples, 26 categorical and 13 dense columns, 2% nulls, batches of {BATCH}, shuffled;", end=" ")
    print(f"dense_transform={asked.dense_transform}; median of {repeats}, samples per second of CPU time")
    print(f"{'ids':28s}{'neo':>12s}{'pyarrow alone':>16s}{'ratio':>8s}{'target':>12s}")
    met = True
    with tempfile.TemporaryDirectory() as folder:
        files = {stored: Path(folder) / f"{stored}.parquet" for stored in ("int32", "string")}
        for stored, path in files.items():
            write_file(path, samples, stored)
        for case in CASES:
            ours, alone = measure(case, files[case.stored], samples, repeats, asked.dense_transform)
            target = "" if case.target is None else f"{case.target:,.0f}"
            print(f"{case.name:28s}{ours:12,.0f}{alone:16,.0f}{ours / alone:8.2f}{target:>12s}", flush=True)
            met &= case.target is None or ours >= case.target
    return 0 if met or asked.short else 1


if __name__ == "__main__":
    sys.exit(main())
