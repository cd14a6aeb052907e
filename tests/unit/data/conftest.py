"""Makes data of every kind in a temporary folder, and loads all of it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from neo.data.batch import Batch
from neo.data.loader import GlobalBatchLoader
from neo.data.schema import DataSchema
from neo.data.spec import DataConfig, DataSpec
from neo.data.vocabulary import learn_schema

Learn = Callable[..., tuple[DataSpec, DataSchema]]
Load = Callable[..., list[Batch]]


@pytest.fixture
def learn(tmp_path: Path) -> Learn:
    """Return a function that validates a configuration and learns its schema."""

    def run(
        *, seed: int = 0, num_embeddings: Any = None, pooling_factors: Any = None, **config: Any
    ) -> tuple[DataSpec, DataSchema]:
        given = DataConfig(**config)
        assert given.validate() == []
        spec = given.to_spec()
        schema = learn_schema(
            spec,
            num_embeddings=num_embeddings,
            pooling_factors=pooling_factors,
            seed=seed,
            folder=tmp_path / "data_schema",
        )
        return spec, schema

    return run


@pytest.fixture
def load() -> Load:
    """Return a function that gives all batches of one rank and epoch."""

    def run(
        spec: DataSpec,
        schema: DataSchema,
        *,
        split: str = "train",
        size: int = 1000,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
        epoch: int = 0,
        limit: int | None = None,
        needs_label: bool = True,
    ) -> list[Batch]:
        loader = GlobalBatchLoader(
            spec,
            schema,
            split=split,
            global_batch_size=size,
            rank=rank,
            world_size=world_size,
            seed=seed,
            limit_samples=limit,
            needs_label=needs_label,
        )
        loader.set_epoch(epoch)
        return list(loader)

    return run


@pytest.fixture
def write_parquet(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes columns to a Parquet file."""

    def run(columns: dict[str, Any], name: str = "data.parquet", row_group_size: int = 1000) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
        return path

    return run


@pytest.fixture
def write_text(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a text file."""

    def run(text: str, name: str = "data.csv") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    return run


@pytest.fixture
def bags() -> Callable[[Batch], list[dict[str, list[int]]]]:
    """Return a function that gives the ids of each sample by feature."""

    def run(batch: Batch) -> list[dict[str, list[int]]]:
        lengths = batch.sparse.lengths
        pieces = torch.split(batch.sparse.values, lengths.tolist())
        size = batch.batch_size
        return [
            {key: pieces[index * size + sample].tolist() for index, key in enumerate(batch.sparse.keys)}
            for sample in range(size)
        ]

    return run


@pytest.fixture
def criteo_sample() -> Path:
    """Return the sample of Criteo's data, which is not part of the project."""
    root = Path(__file__).resolve().parents[3]
    places = [root.parent / "shared"]
    if "NEO_SHARED" in os.environ:
        places.insert(0, Path(os.environ["NEO_SHARED"]))
    for place in places:
        if (place / "data" / "criteo_sample.tsv").is_file():
            return place / "data" / "criteo_sample.tsv"
    pytest.skip("the Criteo sample is not beside the project (../shared/data/criteo_sample.tsv)")
