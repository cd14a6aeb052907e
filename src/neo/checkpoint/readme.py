"""The page for people beside an exported model, made from its card. Torch-free."""

from collections.abc import Mapping
from typing import Any

from neo.units import format_count

_METRICS = {"auc": "AUC", "ne": "normalized entropy", "log_loss": "log loss", "accuracy": "accuracy"}


def readme_of(card: Mapping[str, Any]) -> str:
    """Return the text of ``README.md``."""
    model, trained = card["model"], card["trained"]
    rows = sum(table["num_embeddings"] for table in card["tables"])
    parameters = sum(table["num_embeddings"] * table["embedding_dim"] for table in card["tables"])
    lines = [
        f"# {model['name']}, step {trained['step']}",
        "",
        f"A click model (`{model['name']}`) with {len(card['tables'])} embedding tables "
        f"({format_count(rows)} rows, {format_count(parameters)} parameters) and {model['num_dense']} dense features, "
        f"trained on {format_count(trained['samples'])} samples.",
        "",
        "| file | holds |",
        "|---|---|",
        "| `model.safetensors` | every table whole, as `embeddings.NAME`, and the dense part |",
        "| `model.json` | sizes, tables, features, how ids and dense columns are encoded, metrics, versions |",
    ]
    if any(column["vocabulary"] for column in card["sparse"]):
        lines.append("| `vocabulary_NNNN.parquet` | the row of each known id; `model.json` says of which feature |")
    if "samples" in card:
        lines.append(f"| `samples.safetensors` | {card['samples']} encoded validation samples, to try a loader on |")
    lines += ["", "## Quality", "", *_quality(trained["val"])]
    lines += [
        "",
        "## Tables",
        "",
        "| table | rows | columns | type | pooling | features |",
        "|---|---|---|---|---|---|",
    ]
    for table in card["tables"]:
        pooling = f"{table['pooling']}, weighted" if table["weighted"] else table["pooling"]
        size = f"{table['num_embeddings']:,} | {table['embedding_dim']} | {table['dtype']}"
        lines.append(f"| {table['name']} | {size} | {pooling} | {', '.join(table['features'])} |")
    lines += ["", "## Encoding", "", *_encoding(card)]
    return "\n".join(lines) + "\n"


def _quality(val: Mapping[str, float | None] | None) -> list[str]:
    if val is None:
        return ["Not validated at this step; `neo eval` measures it."]
    known = [(name, val[key]) for key, name in _METRICS.items() if val.get(key) is not None]
    return [f"- {name}: {value:.4f}" for name, value in known]


def _encoding(card: Mapping[str, Any]) -> list[str]:
    rules = dict.fromkeys(f"- {column['encoding']}: {column['rule']}" for column in card["sparse"])
    transform = {
        "standardize": "(x - mean) / deviation, with the numbers in `model.json`; a missing value is 0 after it",
        "log1p": "log(1 + max(x, 0)); a missing value is 0 after it",
        "none": "as they are; a missing value is 0",
    }[card["dense"]["transform"]]
    return [*rules, f"- dense columns: {transform}"]
