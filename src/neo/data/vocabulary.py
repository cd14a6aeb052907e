"""The learning pass, torch-free: one streamed reading of the training data before anything is launched.

It learns vocabularies, the statistics of dense columns, identity ranges and mean ids per sample, whichever are needed,
and skips the reading where none is. Memory grows with the number of distinct ids, not with the size of the files.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from neo.data.columns import (
    Bags,
    Place,
    check_float32,
    to_bags,
    to_finite,
    to_integers,
    to_labels,
    written_id,
    wrong_label,
)
from neo.data.dense import SCALE_DENSE
from neo.data.encode import FIRST_KNOWN_ROW, check_kind
from neo.data.reader import ArrowRows
from neo.data.rules import check_bags, check_features
from neo.data.schema import DataSchema, DenseColumn, SparseColumn, Vocabulary, load_schema, store_schema
from neo.data.spec import READERS, DataSpec, DenseTransform, Encoding, MultiHot, Split
from neo.data.statistics import Moments, VocabularyBuilder
from neo.data.synthetic import synthetic_schema
from neo.errors import ConfigError, DataError, Finding
from neo.limits import MAX_ROWS

__all__ = ["DataSchema", "learn_schema", "load_schema"]


@dataclass
class _Learned:
    """What one sparse column shows while it is read."""

    vocabulary: VocabularyBuilder = field(default_factory=VocabularyBuilder)
    largest: int = -1
    num_ids: int = 0


def learn_schema(
    data: DataSpec,
    *,
    num_embeddings: Sequence[int] | None,
    pooling_factors: Sequence[float] | None,
    seed: int,
    folder: Path,
) -> DataSchema:
    """Learn what the training data holds and store it for the workers.

    Args:
        data: The data; ``data.limit_samples`` limits what is learned from, too.
        num_embeddings: ``model.num_embeddings``: rows per feature under ``hash`` and ``vocabulary``; under ``identity``
            the range of ids, to which the row of missing ids is added. None: from the data.
        pooling_factors: ``model.pooling_factors``: mean ids per sample and feature. None: from the data.
        seed: The run's seed; decides what generated data looks like.
        folder: Where to store it.

    Raises:
        ConfigError: The lists do not fit the data.
        DataError: The data cannot be read.
    """
    count = None if data.is_generated else len(data.features)
    fewest = 2 if data.encoding is Encoding.HASH else 1
    findings = check_features(count, num_embeddings, pooling_factors, fewest)
    if data.multi_hot is MultiHot.FIXED:
        findings += check_bags(pooling_factors)
    if findings:
        raise ConfigError(findings)
    if data.is_generated:
        return store_schema(synthetic_schema(data, num_embeddings, pooling_factors, seed, folder), {})
    reader = READERS.get(data.name)(data, Split.TRAIN)
    learned, moments, num_samples = _read(data, reader, num_embeddings is not None, pooling_factors is not None)
    sparse, vocabularies = [], {}
    for index, name in enumerate(data.features):
        rows, known = _num_rows(data, name, learned[index], None if num_embeddings is None else num_embeddings[index])
        pooling = learned[index].num_ids / num_samples if num_samples else 1.0
        if known is not None:
            vocabularies[name] = known
        sparse.append(
            SparseColumn(
                name=name,
                encoding=data.encoding,
                kind=reader.kinds()[name],
                num_embeddings=rows,
                pooling_factor=pooling if pooling_factors is None else float(pooling_factors[index]),
                weights=_weights_of(data, name),
                vocabulary=None if known is None else f"vocabulary_{index:04d}.arrow",
                min_count=data.min_count,
                bag_size=_bag_size(data, index, pooling_factors),
            )
        )
    _check_rows(data, vocabularies, num_embeddings)
    dense = tuple(DenseColumn(name, m.mean, m.deviation) for name, m in zip(data.dense, moments, strict=True))
    schema = DataSchema(dense, tuple(sparse), "", num_samples or reader.num_samples(), folder)
    _check_validation(data, schema)
    return store_schema(schema, vocabularies)


def _check_validation(data: DataSpec, schema: DataSchema) -> None:
    """Find what is wrong with the columns of the validation files before anything is launched."""
    if data.val_path is not None:
        kinds = READERS.get(data.name)(data, Split.VAL).kinds()
        for column in schema.sparse:
            check_kind(column, kinds[column.name], where=f"'{data.val_path}'")


def _read(
    data: DataSpec, reader: Any, rows_given: bool, pooling_given: bool
) -> tuple[list[_Learned], list[Moments], int]:
    """Read the training data once if something is to be learned; the number of samples is 0 if not."""
    learned = [_Learned() for _ in data.features]
    moments = [Moments() for _ in data.dense]
    learns_dense = data.dense_transform is DenseTransform.STANDARDIZE and len(data.dense) > 0
    learns_ids = data.encoding is Encoding.VOCABULARY or (data.encoding is Encoding.IDENTITY and not rows_given)
    learns_pooling = not pooling_given and len(data.lists) > 0
    if not (learns_dense or learns_ids or learns_pooling):
        return learned, moments, 0
    separator = None if data.name == "parquet" else "|"
    num_samples = 0
    for rows in reader.blocks(order=None, limit=data.limit_samples, raw=True):
        num_samples += len(rows)
        place = _place(reader, rows)
        rows = reader.check(rows)
        _check_labels(data, rows, place)
        if learns_dense:
            for name, moment in zip(data.dense, moments, strict=True):
                values = to_finite(rows.column(name), name, place)
                check_float32(values, name, place, SCALE_DENSE)  # Its square would be beyond float64.
                moment.add(values)
        for name, column in zip(data.features, learned, strict=True):
            is_list = name in data.lists
            if is_list or learns_ids:
                _learn_ids(data, name, column, _bags(rows, name, is_list, separator, place), place)
            else:
                column.num_ids += len(rows)
    return learned, moments, num_samples


def _check_labels(data: DataSpec, rows: ArrowRows, place: Place) -> None:
    """Find a bad label while the file is being read anyway, before the workers are started."""
    if data.label is None:
        return
    wrong = wrong_label(to_labels(rows.column(data.label), data.label, place))
    if wrong is not None:
        raise DataError(f"{place(wrong[0])}: column '{data.label}': {wrong[1]}")


def _place(reader: Any, rows: ArrowRows) -> Place:
    return lambda position: str(reader.place(rows, position))


def _bags(rows: ArrowRows, name: str, is_list: bool, separator: str | None, place: Place) -> Bags:
    if is_list:
        return to_bags(rows.column(name), name, place, separator)
    return Bags(np.ones(len(rows), dtype=np.int64), rows.column(name))


def _learn_ids(data: DataSpec, name: str, column: _Learned, bags: Bags, place: Place) -> None:
    def place_of(element: int) -> str:
        return place(bags.row(element))

    column.num_ids += len(bags.elements)
    if data.encoding is Encoding.VOCABULARY:
        column.vocabulary.add(bags.elements, name, place_of)
    elif data.encoding is Encoding.IDENTITY:
        ids, missing = to_integers(bags.elements, name, place_of)
        ids = ids if missing is None else np.where(missing, -1, ids)
        wrong = (ids < 0) | (ids > MAX_ROWS - 2)  # one more row is for a missing id
        wrong = wrong if missing is None else wrong & ~missing
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            _refuse_row(written_id(bags.elements, ids, at), name, place_of(at))
        column.largest = max(column.largest, int(ids.max(initial=-1)))


def _refuse_row(value: int, name: str, where: str) -> None:
    """Say why an id cannot be the number of a row."""
    if value < 0:
        raise DataError(
            f"{where}: column '{name}': id {value} is negative; with data.encoding=identity an id is "
            "the number of its row; use vocabulary or hash"
        )
    raise DataError(
        f"{where}: id {value} of column '{name}' needs a table of {value + 2} rows, and the limit is {MAX_ROWS} "
        "(2^48); use data.encoding=vocabulary or hash"
    )


def _num_rows(data: DataSpec, name: str, column: _Learned, given: int | None) -> tuple[int, Vocabulary | None]:
    """Return the rows that ids of a column can become, and the vocabulary if there is one."""
    if data.encoding is Encoding.HASH:
        return (data.hash_buckets if given is None else given), None
    if data.encoding is Encoding.IDENTITY:
        if given is None and column.largest < 0:
            raise DataError(f"column '{name}' holds no id at all; remove it, or give model.num_embeddings")
        return (column.largest + 2 if given is None else given + 1), None
    known = column.vocabulary.finish(data.min_count)
    needed = FIRST_KNOWN_ROW + known.hashes.size
    return max(needed, given or 0), known


def _check_rows(data: DataSpec, vocabularies: dict[str, Vocabulary], num_embeddings: Sequence[int] | None) -> None:
    """Refuse a table that is smaller than its vocabulary."""
    findings = []
    for index, name in enumerate(data.features):
        if num_embeddings is not None and name in vocabularies:
            needed = FIRST_KNOWN_ROW + vocabularies[name].hashes.size
            if num_embeddings[index] < needed:
                findings.append(
                    Finding(
                        f"model.num_embeddings[{index}]",
                        f"{num_embeddings[index]} rows are too few for '{name}': its vocabulary needs {needed}",
                        f"write at least {needed}, or data.encoding=hash",
                    )
                )
    if findings:
        raise ConfigError(findings)


def _bag_size(data: DataSpec, index: int, pooling_factors: Sequence[float] | None) -> int:
    return 1 if pooling_factors is None or data.multi_hot is MultiHot.NONE else int(pooling_factors[index])


def _weights_of(data: DataSpec, name: str) -> str | None:
    return data.list_weights[data.lists.index(name)] if name in data.lists else None
