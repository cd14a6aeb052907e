"""One reading of a data set that counts everything ``neo data check`` looks at, in bounded memory, torch-free.

Nothing here stops at a bad value: it is counted, and the first one's place is kept.

Shapes: n rows of a block, N ids of a column in it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from neo.data.columns import Bags, Place, to_bags, to_floats, to_hashes, to_integers, to_labels
from neo.data.hashing import Hashes, mix
from neo.data.label_order import LabelOrder
from neo.data.reader import ArrowRows
from neo.data.sketches import DuplicateSample, IdCounter
from neo.data.spec import READERS, DataSpec, Split
from neo.data.statistics import Moments, distinct_ids
from neo.errors import DataError

_MAX_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass
class Faults:
    """Values of one kind that should not be there: how many, and where the first is."""

    count: int = 0
    first: str = ""

    def add(self, wrong: NDArray[np.bool_], place: Place) -> None:
        """Count the flags that are set."""
        if wrong.any():
            self.first = self.first or place(int(np.flatnonzero(wrong)[0]))
            self.count += int(np.count_nonzero(wrong))


@dataclass
class DenseFacts:
    """What a dense column holds; ``problem`` says why it was not read to its end."""

    missing: int = 0
    smallest: float = np.inf
    largest: float = -np.inf
    moments: Moments = field(default_factory=Moments)
    not_finite: Faults = field(default_factory=Faults)
    too_large: Faults = field(default_factory=Faults)
    problem: str = ""


@dataclass
class SparseFacts:
    """What a sparse column holds; smallest and largest id only where ids are whole numbers."""

    ids: IdCounter = field(default_factory=IdCounter)
    missing: int = 0
    smallest: int | None = None
    largest: int | None = None
    outside: Faults = field(default_factory=Faults)
    wrong_weights: Faults = field(default_factory=Faults)
    problem: str = ""


@dataclass
class Survey:
    """All that one reading counted."""

    dense: dict[str, DenseFacts]
    sparse: dict[str, SparseFacts]
    num_samples: int = 0
    labels: LabelOrder = field(default_factory=LabelOrder)
    missing_labels: Faults = field(default_factory=Faults)
    wrong_labels: Faults = field(default_factory=Faults)
    label_problem: str = ""
    duplicates: DuplicateSample = field(default_factory=DuplicateSample)
    unreadable: str = ""
    unchecked_blocks: str = ""


def survey(data: DataSpec, *, table_rows: Sequence[int] | None, progress: Callable[[int, int | None], None]) -> Survey:
    """Read the data of ``data.path`` once.

    Args:
        data: Files and columns.
        table_rows: Per feature the number of ids that its table takes under ``identity``; None if that is not known.
        progress: Called with the samples read so far, and with how many there are if that is known.

    Raises:
        ConfigError: A file lacks a column.
        DataError: Files are missing, or hold nothing.
    """
    reader = READERS.get(data.name)(data, Split.TRAIN)
    total = reader.num_samples()
    total = total if total is None or data.limit_samples is None else min(total, data.limit_samples)
    found = Survey({name: DenseFacts() for name in data.dense}, {name: SparseFacts() for name in data.features})
    limits = dict(zip(data.features, table_rows, strict=True)) if table_rows is not None else {}
    try:
        for rows in reader.blocks(order=None, limit=data.limit_samples, raw=True):
            _Block(data, reader, rows).count(found, limits)
            progress(found.num_samples, total)
    except DataError as error:
        if not found.num_samples:
            raise
        found.unreadable = str(error)
    return found


class _Block:
    """The rows of one block."""

    def __init__(self, data: DataSpec, reader: Any, rows: ArrowRows) -> None:
        self._data = data
        self._reader = reader
        self._raw = self._checked = rows
        self._row_hashes: Hashes = np.zeros(len(rows), dtype=np.uint64)

    def _place(self, position: int) -> str:
        return str(self._reader.place(self._raw, position))

    def count(self, found: Survey, limits: dict[str, int]) -> None:
        found.num_samples += len(self._raw)
        try:
            rows = self._reader.check(self._raw)
        except DataError as error:
            found.unchecked_blocks = found.unchecked_blocks or str(error)
            return
        self._checked = rows
        self._labels(rows, found)
        for name, dense in found.dense.items():
            if not dense.problem:
                try:
                    self._dense(rows.column(name), name, dense)
                except DataError as error:
                    dense.problem = str(error)
        for name, sparse in found.sparse.items():
            if not sparse.problem:
                try:
                    self._sparse(rows.column(name), name, sparse, limits.get(name))
                except DataError as error:
                    sparse.problem = str(error)
        found.duplicates.add(self._row_hashes)

    def _labels(self, rows: ArrowRows, found: Survey) -> None:
        label = self._data.label
        if label is None or found.label_problem:
            return
        try:
            labels = to_labels(rows.column(label), label, self._place)
        except DataError as error:
            found.label_problem = str(error)
            return
        missing = np.isnan(labels)
        right = (labels >= 0) & (labels <= 1)
        found.missing_labels.add(missing, self._place)
        found.wrong_labels.add(~right & ~missing, self._place)
        found.labels.add(labels[right])
        self._mix_in(labels.view(np.uint32).astype(np.uint64))

    def _dense(self, array: Any, name: str, facts: DenseFacts) -> None:
        values = to_floats(array, name, self._place)
        facts.missing += int(array.null_count)
        finite = np.isfinite(values)
        if not finite.all():
            given = np.ones(values.size, np.bool_) if not array.null_count else ~_nulls(array)
            facts.not_finite.add(~finite & given, self._place)
        facts.too_large.add(finite & (np.abs(values) > _MAX_FLOAT32), self._place)
        known = values[finite]
        if known.size:
            facts.smallest = min(facts.smallest, float(known.min()))
            facts.largest = max(facts.largest, float(known.max()))
            with np.errstate(over="ignore"):
                facts.moments.add(known[np.abs(known) <= _MAX_FLOAT32])
        self._mix_in(values.view(np.uint64))

    def _sparse(self, array: Any, name: str, facts: SparseFacts, limit: int | None) -> None:
        bags = self._bags(array, name)

        def place(element: int) -> str:
            return self._place(bags.row(element))

        elements = bags.elements
        distinct, counts = distinct_ids(elements, name, place)
        hashes, missing = to_hashes(distinct, name, place)
        if missing is not None:
            hashes, counts = hashes[~missing], counts[~missing]
            distinct = distinct.drop_null()
        facts.missing += len(elements) - int(counts.sum())
        facts.ids.add(hashes, counts)
        if pa.types.is_integer(distinct.type) and len(distinct):
            self._range(elements, distinct, name, facts, limit, place)
        elif limit is not None and len(distinct):  # texts that spell whole numbers
            self._range(elements, pa.array(to_integers(distinct, name, place)[0]), name, facts, limit, place)
        self._weights(bags, name, facts)
        self._mix_bags(bags, name)

    def _weights(self, bags: Bags, name: str, facts: SparseFacts) -> None:
        column = self._data.list_weights[self._data.lists.index(name)] if name in self._data.lists else None
        if column is None:
            return
        given = self._bags_of(self._checked.column(column), column)
        facts.wrong_weights.add(given.lengths != bags.lengths, self._place)
        values = to_floats(given.elements, column, self._place)
        known = ~_nulls(given.elements)
        wrong = known & ~(np.abs(values) <= _MAX_FLOAT32)
        facts.wrong_weights.add(wrong, lambda element: self._place(given.row(element)))

    def _range(
        self, elements: Any, distinct: Any, name: str, facts: SparseFacts, limit: int | None, place: Place
    ) -> None:
        smallest, largest = _min_max(distinct)
        facts.smallest = smallest if facts.smallest is None else min(facts.smallest, smallest)
        facts.largest = largest if facts.largest is None else max(facts.largest, largest)
        if limit is not None and (smallest < 0 or largest >= limit):
            ids, missing = to_integers(elements, name, place)
            outside = (ids < 0) | (ids >= limit)
            facts.outside.add(outside if missing is None else outside & ~missing, place)

    def _bags(self, array: Any, name: str) -> Bags:
        if name not in self._data.lists:
            return Bags(np.ones(len(array), dtype=np.int64), array)
        return self._bags_of(array, name)

    def _bags_of(self, array: Any, name: str) -> Bags:
        return to_bags(array, name, self._place, None if self._data.name == "parquet" else "|")

    def _mix_bags(self, bags: Bags, name: str) -> None:
        hashes, missing = to_hashes(bags.elements, name, self._place)
        if missing is not None:
            hashes = np.where(missing, np.uint64(0), hashes)
        if name not in self._data.lists:
            self._mix_in(hashes)
            return
        sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(mix(hashes), dtype=np.uint64)])
        ends = np.cumsum(bags.lengths)
        self._mix_in(sums[ends] - sums[ends - bags.lengths])  # the same for every order within a bag

    def _mix_in(self, words: Hashes) -> None:
        self._row_hashes = mix(self._row_hashes * np.uint64(3) + words + np.uint64(1))


def _min_max(array: Any) -> tuple[int, int]:
    """Return the smallest and the largest of an Arrow array of whole numbers."""
    values = array.to_numpy(zero_copy_only=False)
    return int(values.min()), int(values.max())


def _nulls(array: Any) -> NDArray[np.bool_]:
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False), dtype=bool)
