"""What is wrong with a data set, by what a survey counted: findings with severity and fix, torch-free."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from neo.data.encode import FIRST_KNOWN_ROW
from neo.data.skew import rank_histogram, zipf_exponent
from neo.data.spec import DataSpec, Encoding
from neo.data.statistics_file import DataStatistics, FeatureStatistics
from neo.data.survey import DenseFacts, Faults, SparseFacts, Survey

MOSTLY_MISSING = 0.95
HALF_MISSING = 0.5
LEAST_RUNS = 0.8
LARGEST_DRIFT = 0.25
MOST_DUPLICATES = 0.05
LARGEST_TOP_SHARE = 0.5


class Severity(StrEnum):
    """``error``: training stops at it or learns nonsense; ``warning``: probably a mistake; ``note``: worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class DataFinding:
    """One thing that was found.

    Attributes:
        severity: How bad it is.
        column: The column, or empty for the data as a whole.
        problem: What it is, with numbers and the first place.
        fix: What can be done.
    """

    severity: Severity
    column: str
    problem: str
    fix: str

    def __str__(self) -> str:
        column = f"column '{self.column}': " if self.column else ""
        return f"{self.severity}: {column}{self.problem}; {self.fix}"


def diagnose(data: DataSpec, found: Survey, table_rows: Sequence[int] | None) -> list[DataFinding]:
    """Return all findings, the worst first.

    Args:
        data: Files and columns.
        found: What was counted.
        table_rows: ``model.num_embeddings``, or None.
    """
    findings = [*_whole(found), *_labels(data, found)]
    for name, dense in found.dense.items():
        findings += _dense(name, dense, found.num_samples)
    rows = dict(zip(data.features, table_rows, strict=True)) if table_rows is not None else {}
    for name, sparse in found.sparse.items():
        findings += _sparse(data, name, sparse, rows.get(name))
    return sorted(findings, key=lambda finding: list(Severity).index(finding.severity))


def _whole(found: Survey) -> Iterator[DataFinding]:
    if found.unreadable:
        yield DataFinding(Severity.ERROR, "", f"reading ended early: {found.unreadable}", "write the file again")
    if found.unchecked_blocks:
        yield DataFinding(
            Severity.ERROR, "", found.unchecked_blocks, "correct it; the lines read with it were left out"
        )
    share = found.duplicates.share
    if share > MOST_DUPLICATES:
        about = "" if found.duplicates.is_exact else "about "
        problem = f"{about}{share:.1%} of the samples repeat an earlier one in every column"
        yield DataFinding(Severity.WARNING, "", problem, "remove them, unless the same event really happened so often")


def _labels(data: DataSpec, found: Survey) -> Iterator[DataFinding]:
    name = data.label
    if name is None:
        return
    if found.label_problem:
        yield DataFinding(Severity.ERROR, name, found.label_problem, "labels are numbers from 0 to 1")
        return
    if found.missing_labels.count:
        problem = f"{_many(found.missing_labels)} without a label"
        yield DataFinding(Severity.ERROR, name, problem, "leave these samples out")
    if found.wrong_labels.count:
        problem = f"{_many(found.wrong_labels)} with a label outside [0, 1]"
        yield DataFinding(Severity.ERROR, name, problem, "write 1 for a click and 0 for none")
    labels = found.labels
    if labels.num_labels and labels.num_positives in (0, labels.num_labels):
        value = 1 if labels.num_positives else 0
        yield DataFinding(Severity.ERROR, name, f"every label is {value}", "a model needs samples of both kinds")
        return
    ratio = labels.runs_ratio
    if ratio is not None and ratio < LEAST_RUNS:
        problem = f"the labels are not shuffled: they change {ratio:.2f} times as often as mixed ones would"
        yield DataFinding(Severity.WARNING, name, problem, "shuffle the samples, data.shuffle mixes nearby ones only")
    elif labels.drift > LARGEST_DRIFT:
        rates = labels.segment_rates()
        problem = f"the label rate drifts over the data, from {min(rates):.3f} to {max(rates):.3f}"
        yield DataFinding(Severity.WARNING, name, problem, "shuffle the samples if their order is not that of time")


def _dense(name: str, facts: DenseFacts, num_samples: int) -> Iterator[DataFinding]:
    if facts.problem:
        yield DataFinding(Severity.ERROR, name, facts.problem, "write numbers, or leave the column out")
        return
    if facts.not_finite.count:
        problem = f"{_many(facts.not_finite)} with a NaN or an infinite value"
        yield DataFinding(Severity.ERROR, name, problem, "write null (an empty cell) for a missing value")
    if facts.too_large.count:
        problem = f"{_many(facts.too_large)} with a value beyond 3.4e38, the limit of float32"
        yield DataFinding(Severity.ERROR, name, problem, "scale the column")
    yield from _missing(name, facts.missing, num_samples)
    if facts.missing < num_samples and facts.smallest == facts.largest and not facts.not_finite.count:
        problem = f"is constant: every value is {facts.smallest:g}"
        yield DataFinding(Severity.WARNING, name, problem, "remove it from data.dense: nothing can be learned from it")


def _sparse(data: DataSpec, name: str, facts: SparseFacts, rows: int | None) -> Iterator[DataFinding]:
    if facts.problem:
        yield DataFinding(Severity.ERROR, name, facts.problem, "ids are whole numbers or text")
        return
    if facts.wrong_weights.count:
        problem = f"{_many(facts.wrong_weights)} whose weights are not finite, or not as many as its ids"
        yield DataFinding(Severity.ERROR, name, problem, "give every id one number as its weight")
    total = facts.ids.total + facts.missing
    yield from _missing(name, facts.missing, total)
    if facts.ids.total == 0:
        return
    distinct = facts.ids.num_distinct
    if distinct == 1:
        problem = "is constant: there is one id only"
        yield DataFinding(Severity.WARNING, name, problem, "remove it: nothing can be learned from it")
    yield from _range(data, name, facts, rows)
    top = int(facts.ids.counts()[0]) / facts.ids.total
    if distinct > 1 and top > LARGEST_TOP_SHARE:
        problem = f"one id makes up {top:.0%} of all"
        yield DataFinding(Severity.NOTE, name, problem, "see whether it stands for a missing one")


def _range(data: DataSpec, name: str, facts: SparseFacts, rows: int | None) -> Iterator[DataFinding]:
    distinct, key = facts.ids.num_distinct, f"model.num_embeddings[{data.features.index(name)}]"
    if data.encoding is Encoding.IDENTITY:
        if facts.outside.count:
            limit = "" if rows is None else f" or outside its table's rows [0, {rows - 1}]"
            found = f"ids go from {facts.smallest} to {facts.largest}"
            negative = facts.smallest is not None and facts.smallest < 0
            if negative:
                problem = f"{_many(facts.outside)} with a negative id{limit}; {found}"
                fix = "use data.encoding=vocabulary or hash: under identity an id is a row"
            else:
                problem = f"{_many(facts.outside)} with an id outside its table's rows [0, {(rows or 0) - 1}]; {found}"
                fix = f"raise {key}, or use data.encoding=hash"
            yield DataFinding(Severity.ERROR, name, problem, fix)
    elif data.encoding is Encoding.HASH:
        buckets = data.hash_buckets if rows is None else rows
        if distinct > buckets - 1:
            problem = f"{distinct:,} distinct ids share {buckets - 1:,} rows"
            fix = f"raise {'data.hash_buckets' if rows is None else key}, or accept that ids share rows"
            yield DataFinding(Severity.NOTE, name, problem, fix)
    elif rows is not None and data.min_count == 1 and distinct + FIRST_KNOWN_ROW > rows:
        problem = f"{distinct:,} distinct ids need {distinct + FIRST_KNOWN_ROW:,} rows, and its table has {rows:,}"
        yield DataFinding(Severity.ERROR, name, problem, f"raise {key}, set data.min_count, or use data.encoding=hash")


def _missing(name: str, missing: int, total: int) -> Iterator[DataFinding]:
    share = missing / total if total else 0.0
    problem = f"{share:.1%} of its values are missing"
    if total and missing == total:
        yield DataFinding(Severity.WARNING, name, "holds no value at all", "remove it")
    elif share > MOSTLY_MISSING:
        yield DataFinding(Severity.WARNING, name, problem, "remove it, or mend what it comes from")
    elif share > HALF_MISSING:
        yield DataFinding(Severity.NOTE, name, problem, "see whether that is meant")


def _many(faults: Faults) -> str:
    number = f"{faults.count:,} value{'' if faults.count == 1 else 's'}"
    return f"{number} (first: {faults.first})"


def statistics_of(found: Survey) -> DataStatistics:
    """Return what the histogram file holds."""
    features = []
    for name, facts in found.sparse.items():
        ids = facts.ids
        ends, counts = rank_histogram(ids.counts(), ids.num_distinct, ids.total)
        features.append(
            FeatureStatistics(
                name=name,
                num_ids=ids.total,
                num_missing=facts.missing,
                num_distinct=ids.num_distinct,
                is_exact=ids.is_exact,
                most_missed=ids.most_missed,
                mean_ids_per_sample=(ids.total + facts.missing) / found.num_samples if found.num_samples else 0.0,
                zipf_exponent=zipf_exponent(ends, counts),
                rank_ends=tuple(ends.tolist()),
                counts=tuple(counts.tolist()),
            )
        )
    return DataStatistics(found.num_samples, tuple(features))
