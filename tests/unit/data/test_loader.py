"""Global batches: the same for every world size, split without overlap, shuffled by seed, in bounded memory."""

import gc
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from neo.data.batch import Batch, split_evenly
from neo.data.loader import GlobalBatchLoader, attainable, make_loader
from neo.errors import ConfigError, DataError


@pytest.fixture(params=["synthetic", "parquet", "csv"])
def case(request: pytest.FixtureRequest, learn: Any, write_parquet: Any, write_text: Any) -> tuple[Any, Any]:
    """Give 1,003 samples of every kind of reader; the id of ``number`` is the sample's number in files."""
    if request.param == "synthetic":
        generated: tuple[Any, Any] = learn(num_samples=1003, val_samples=50, pooling_factors=[1.0, 2.5, 0.5])
        return generated
    lists = [[i % 7] * (i % 4) for i in range(1003)]
    config = {"label": "y", "categorical": ["number"], "lists": ["l"], "encoding": "identity", "shuffle_window": 150}
    if request.param == "parquet":
        path = write_parquet({"y": [i % 2 for i in range(1003)], "number": range(1003), "l": lists}, row_group_size=90)
    else:
        rows = [f"{i % 2},{i},{'|'.join(map(str, lists[i]))}\n" for i in range(1003)]
        write_text("y,number,l\n" + "".join(rows[:400]), name="folder/0.csv")
        path = write_text("y,number,l\n" + "".join(rows[400:]), name="folder/1.csv").parent
    found: tuple[Any, Any] = learn(name=request.param, path=str(path), val_path=str(path), **config)
    return found


def numbers(batches: list[Batch]) -> list[int]:
    return [int(i) for batch in batches for i in batch.sparse.values[: batch.batch_size]]


def bags_of(batch: Batch) -> list[Any]:
    """Everything about each sample, comparable."""
    pieces = torch.split(batch.sparse.values, batch.sparse.lengths.tolist())
    size = batch.batch_size
    return [
        (
            batch.dense[sample].tolist(),
            float(batch.labels[sample]),
            [pieces[feature * size + sample].tolist() for feature in range(len(batch.sparse.keys))],
        )
        for sample in range(size)
    ]


@pytest.mark.parametrize("size", [64, 1, 2000])
def test_global_batches_are_the_same_for_every_world_size(case: Any, load: Any, size: int) -> None:
    limit = 5 if size == 1 else None
    whole = load(*case, size=size, limit=limit)
    total = limit or 1003
    assert len(whole) == -(-total // size)
    assert sum(batch.batch_size for batch in whole) == total
    for world_size in (2, 3, 4):
        parts = [load(*case, size=size, rank=rank, world_size=world_size, limit=limit) for rank in range(world_size)]
        for index, batch in enumerate(whole):
            own = [part[index] for part in parts]
            for rank, part in enumerate(own):
                low, high = split_evenly(batch.batch_size, rank, world_size)
                assert (part.index, part.first_sample, part.batch_size) == (index, low, high - low)
            assert [sample for part in own for sample in bags_of(part)] == bags_of(batch)


def test_shuffled_by_seed_and_epoch(case: Any, load: Any) -> None:
    spec, schema = case
    if not spec.shuffle:
        assert [bags_of(b) for b in load(spec, schema, epoch=1)] == [bags_of(b) for b in load(spec, schema)]
        return
    orders = {
        (seed, epoch): numbers(load(spec, schema, size=100, seed=seed, epoch=epoch))
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    assert len({tuple(order) for order in orders.values()}) == 4
    for order in orders.values():
        assert sorted(order) == list(range(1003))
    assert numbers(load(spec, schema, size=100, seed=1, epoch=1)) == orders[1, 1]
    moved = np.abs(np.array(orders[0, 0]) - np.arange(1003)).mean()
    if spec.name == "csv":
        assert moved > 30  # within a file only its window moves rows
    else:
        assert moved > 100  # parts of the files move, too: a window alone would move rows by 50 on average


def test_validation_reads_every_sample_once_in_order(case: Any, load: Any) -> None:
    spec, schema = case
    batches = load(spec, schema, split="val", size=33)
    if spec.is_generated:
        assert sum(batch.batch_size for batch in batches) == 50
    else:
        assert numbers(batches) == list(range(1003))


def test_length_and_epochs(case: Any) -> None:
    spec, schema = case
    loader = make_loader(
        spec, schema, split="train", global_batch_size=100, rank=0, world_size=1, seed=0, limit_samples=None
    )
    assert loader is not None
    assert (len(loader), loader.num_samples, loader.global_batch_size) == (11, 1003, 100)
    first, second = list(loader), list(loader)
    loader.set_epoch(0)
    assert [bags_of(batch) for batch in loader] == [bags_of(batch) for batch in first]
    if spec.shuffle:
        assert numbers(first) != numbers(second)


def test_no_validation_data(learn: Any, write_text: Any) -> None:
    spec, schema = learn(val_samples=0)
    common: dict[str, Any] = {"global_batch_size": 8, "rank": 0, "world_size": 1, "seed": 0}
    assert make_loader(spec, schema, split="val", **common) is None
    assert attainable(spec, schema, 0) is None
    spec, schema = learn(name="csv", path=str(write_text("y,a\n1,x\n")), label="y", categorical=["a"])
    assert make_loader(spec, schema, split="val", **common) is None
    assert attainable(spec, schema, 0) is None


def test_limit(case: Any, load: Any) -> None:
    spec, schema = case
    assert [batch.batch_size for batch in load(spec, schema, size=100, limit=250)] == [100, 100, 50]
    assert sum(batch.batch_size for batch in load(spec, schema, size=100, limit=5000)) == 1003


def test_the_thread_ends_when_the_iterator_is_dropped(case: Any) -> None:
    spec, schema = case
    loader = GlobalBatchLoader(spec, schema, split="train", global_batch_size=8, rank=0, world_size=1, seed=0)
    before = threading.active_count()
    iterator = iter(loader)
    next(iterator)
    assert threading.active_count() == before + 1
    thread = next(t for t in threading.enumerate() if t.name == "neo-read-train")
    del iterator
    gc.collect()
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_memory_does_not_grow_with_the_file(learn: Any, tmp_path: Path, write_parquet: Any) -> None:
    rows = 400_000
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {f"c{i}": rng.integers(0, 10**9, rows) for i in range(10)}
    path = write_parquet({"y": np.zeros(rows, dtype=np.int8), **columns}, row_group_size=10_000)
    config = {"name": "parquet", "path": str(path), "label": "y", "categorical": list(columns), "encoding": "hash"}
    spec, schema = learn(**config, hash_buckets=100, shuffle_window=8_000)
    loader = GlobalBatchLoader(spec, schema, split="train", global_batch_size=1000, rank=0, world_size=4, seed=0)
    base = pa.total_allocated_bytes()
    seen, most = 0, 0
    for batch in loader:
        seen += batch.batch_size
        most = max(most, pa.total_allocated_bytes() - base)
    assert seen == rows // 4
    whole = rows * 10 * 8
    assert most < whole / 4  # window, block, carried rows and Arrow's own buffers


def test_errors_of_the_reader_come_through_the_thread(learn: Any, load: Any, write_text: Any) -> None:
    path = write_text("y,d,a\n1,2,x\n")
    spec, schema = learn(name="csv", path=str(path), label="y", dense=["d"], categorical=["a"])
    path.write_text("y,d,a\n1,oops,x\n")
    with pytest.raises(DataError, match="line 2: column 'd': 'oops' is not a number"):
        load(spec, schema)


@pytest.mark.parametrize("workers", [0, 2, 4])
def test_batches_are_the_same_for_every_number_of_workers(case: Any, load: Any, workers: int) -> None:
    spec, schema = case
    expected = [bags_of(batch) for batch in load(spec, schema, size=40, world_size=2, rank=1)]
    found = load(replace(spec, num_workers=workers), schema, size=40, world_size=2, rank=1)
    assert [batch.index for batch in found] == list(range(26))
    assert [bags_of(batch) for batch in found] == expected


def test_no_thread_without_workers_and_all_end_with_their_consumer(case: Any) -> None:
    spec, schema = case
    before = set(threading.enumerate())
    common: dict[str, Any] = {"split": "train", "global_batch_size": 8, "rank": 0, "world_size": 1, "seed": 0}
    next(iter(GlobalBatchLoader(replace(spec, num_workers=0), schema, **common)))
    assert set(threading.enumerate()) == before
    iterator = iter(GlobalBatchLoader(replace(spec, num_workers=3), schema, **common))
    next(iterator)
    started = set(threading.enumerate()) - before
    assert 2 <= len(started) <= 3
    del iterator
    gc.collect()
    for thread in started:
        thread.join(timeout=10)
        assert not thread.is_alive()


@pytest.mark.parametrize("workers", [0, 3])
def test_errors_come_after_the_batches_before_them(workers: int, learn: Any, write_parquet: Any) -> None:
    path = write_parquet({"y": [0] * 40_000, "a": range(40_000)})
    config = {"name": "parquet", "path": str(path), "label": "y", "categorical": ["a"], "encoding": "hash"}
    spec, schema = learn(**config, num_workers=workers, shuffle=False)
    write_parquet({"y": [0] * 39_999 + [7], "a": range(40_000)})
    seen: list[int] = []
    loader = GlobalBatchLoader(spec, schema, split="train", global_batch_size=1000, rank=0, world_size=1, seed=0)
    with pytest.raises(DataError, match=r"row 999: column 'y': label 7.0 is outside \[0, 1\] \(batch 39, sample 999\)"):
        seen.extend(batch.index for batch in loader)
    assert seen == list(range(32))  # 16 batches are encoded together


def test_without_labels_files_may_lack_the_column(learn: Any, load: Any, write_parquet: Any, write_text: Any) -> None:
    spec, schema = learn(
        name="parquet", path=str(write_parquet({"y": [1, 1], "a": [5, 6]})), label="y", categorical=["a"], shuffle=False
    )
    common: dict[str, Any] = {"split": "train", "global_batch_size": 8, "rank": 0, "world_size": 1, "seed": 0}
    labelled = make_loader(spec, schema, **common)
    assert labelled is not None and labelled.has_labels
    for columns in ({"a": [5, 6]}, {"y": ["bad", "worse"], "a": [5, 6]}):
        write_parquet(columns)
        with pytest.raises(ConfigError, match="column 'y'"):
            make_loader(spec, schema, **common)
        loader = make_loader(spec, schema, **common, needs_label=False)
        assert loader is not None and not loader.has_labels
        (batch,) = list(loader)
        assert batch.labels.tolist() == [0.0, 0.0]
        assert sorted(batch.sparse.values.tolist()) == [2, 3]
    assert load(spec, schema, needs_label=False)[0].labels.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("labelled", [True, False])
def test_criteo_files_without_labels(labelled: bool, learn: Any, write_text: Any) -> None:
    fields = [*map(str, range(13)), *(f"{number:08x}" for number in range(26))]
    path = write_text("\t".join(["1", *fields]) + "\n", name="train.txt")
    spec, schema = learn(name="criteo", path=str(path))
    path.write_text("\t".join(["1", *fields] if labelled else fields) + "\n")
    common: dict[str, Any] = {"split": "train", "global_batch_size": 8, "rank": 0, "world_size": 1, "seed": 0}
    loader = make_loader(spec, schema, **common, needs_label=False)
    assert loader is not None
    (batch,) = list(loader)
    assert batch.labels.tolist() == [0.0]
    assert batch.dense[0].tolist() == pytest.approx(np.log1p(np.arange(13)).tolist())
    if not labelled:
        with pytest.raises(DataError, match="40"):
            list(make_loader(spec, schema, **common) or ())


@pytest.mark.parametrize(("shuffle", "workers"), [(True, 0), (True, 2), (False, 2)])
def test_an_epoch_goes_on_at_any_sample_with_any_batch_size(case: Any, shuffle: bool, workers: int) -> None:
    spec, schema = case
    spec = replace(spec, shuffle=shuffle, num_workers=workers)

    def loader(size: int, rank: int = 0, world_size: int = 1) -> GlobalBatchLoader:
        made = make_loader(
            spec, schema, split="train", global_batch_size=size, rank=rank, world_size=world_size, seed=3
        )
        assert made is not None
        return made

    whole = loader(64)
    whole.set_epoch(1)
    samples = [sample for batch in whole for sample in bags_of(batch)]
    for first, size, world_size in ((0, 64, 1), (640, 64, 2), (150, 64, 1), (613, 100, 3), (1000, 2000, 1)):
        parts = []
        for rank in range(world_size):
            own = loader(size, rank, world_size)
            own.set_epoch(1, first_sample=first)
            parts.append(list(own))
            assert own.batches_before(first) + len(parts[-1]) == len(own)
            assert len(list(own)) == len(own)  # the next epoch is whole
        joined = [sample for batches in zip(*parts, strict=True) for part in batches for sample in bags_of(part)]
        assert joined == samples[first:]


def test_an_epoch_that_goes_on_encodes_nothing_of_what_it_skips(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = make_loader(*case, split="train", global_batch_size=64, rank=0, world_size=1, seed=3)
    assert loader is not None
    encoded: list[int] = []
    encode = loader._encoder.encode

    class Counting:
        def encode(self, rows: Any) -> Any:
            encoded.append(len(rows))
            return encode(rows)

    monkeypatch.setattr(loader, "_encoder", Counting())
    loader.set_epoch(0, first_sample=640)
    assert sum(batch.batch_size for batch in loader) == sum(encoded) == 1003 - 640


def test_data_that_ended_before_the_run_goes_on_is_refused(case: Any) -> None:
    loader = make_loader(*case, split="train", global_batch_size=64, rank=0, world_size=1, seed=3)
    assert loader is not None
    loader.set_epoch(0, first_sample=1500)
    with pytest.raises(DataError, match="there are no train samples where this run would go on"):
        list(loader)
