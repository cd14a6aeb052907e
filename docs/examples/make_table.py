"""Write a small click table in the folder that is named: string ids, a list column, missing values, wide dense columns.

Whether a sample was clicked depends on user, item, tags and price, so a model that reads them beats the base rate.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

USERS, ITEMS, TAGS = 500, 300, 40


def make(num_samples: int, seed: int) -> pa.Table:
    """Return a table of ``num_samples`` rows."""
    taste = np.random.default_rng(0)  # the same taste in every split
    user_taste, item_taste = taste.normal(0, 1, USERS), taste.normal(0, 1, ITEMS)
    tag_taste = taste.normal(0, 0.5, TAGS)
    rng = np.random.default_rng(seed)
    users, items = rng.zipf(1.3, num_samples) % USERS, rng.zipf(1.3, num_samples) % ITEMS
    counts = rng.integers(0, 4, num_samples)
    tags = rng.integers(0, TAGS, counts.sum())
    price = rng.uniform(0, 1_000_000, num_samples)
    age = rng.integers(18, 90, num_samples).astype(float)
    liked = np.bincount(np.repeat(np.arange(num_samples), counts), weights=tag_taste[tags], minlength=num_samples)
    logit = user_taste[users] + item_taste[items] + liked - price / 500_000
    columns = {
        "clicked": (rng.random(num_samples) < 1 / (1 + np.exp(-logit))).astype(np.int64),
        "user": [
            None if missing else f"user-{u}" for u, missing in zip(users, rng.random(num_samples) < 0.02, strict=True)
        ],
        "item": items,
        "tags": pa.ListArray.from_arrays(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), tags),
        "age": pa.array(age, mask=rng.random(num_samples) < 0.1),
        "price": price,
    }
    return pa.table(columns)


def main(folder: Path) -> None:
    """Write training and validation files in both formats."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, num_samples, seed in (("train", 60_000, 1), ("val", 10_000, 2)):
        table = make(num_samples, seed)
        pyarrow.parquet.write_table(table, folder / f"{split}.parquet", row_group_size=10_000)
        pyarrow.csv.write_csv(table.drop_columns(["tags"]), folder / f"{split}.csv")
        print(f"wrote {num_samples:,} samples: {folder / split}.parquet, and without tags {folder / split}.csv")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
