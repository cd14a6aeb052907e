"""What a table may be."""

import re
from typing import Any

import pytest

from neo.tables.spec import TableSpec


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("t", 0, 4, ("f",)), "table 't': num_embeddings and embedding_dim must be at least 1, not 0 x 4"),
        (("t", 3.5, 4, ("f",)), "table 't': num_embeddings and embedding_dim are whole numbers, not (3.5, 4)"),
        (("t", 3, 4, ()), "table 't': feature_names is empty; name the features that read it"),
        (("t", 3, 4, "user"), "table 't': it needs a name, and feature_names a tuple of names, not 'user'"),
        (("", 3, 4, ("f",)), "table '': it needs a name, and feature_names a tuple of names, not ('f',)"),
    ],
)
def test_what_is_no_table(arguments: Any, text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        TableSpec(*arguments)
