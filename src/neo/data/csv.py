"""Comma-separated text with a header; the elements of a list column are separated by ``|``.

An empty field is a missing value; in a list column it is an empty list, and an empty element is a missing id.
"""

from neo.data.delimited import DelimitedReader, TextFormat
from neo.data.spec import DataSpec, Split

_FORMAT = TextFormat(delimiter=",", columns=None, quoted=True)


def open_csv(data: DataSpec, split: Split) -> DelimitedReader:
    """Return the reader of one split. Raises as ``DelimitedReader`` does."""
    return DelimitedReader(data, split, _FORMAT)
