"""Criteo's raw display-advertising format: tab-separated, no header; label, 13 integers, 26 hexadecimal ids."""

from neo.data.delimited import DelimitedReader, TextFormat
from neo.data.spec import CRITEO_CATEGORICAL, CRITEO_DENSE, DataSpec, Split

_FORMAT = TextFormat(delimiter="\t", columns=("label", *CRITEO_DENSE, *CRITEO_CATEGORICAL), quoted=False)


def open_criteo(data: DataSpec, split: Split) -> DelimitedReader:
    """Return the reader of one split. Raises as ``DelimitedReader`` does."""
    return DelimitedReader(data, split, _FORMAT)
