"""neo: train, plan and co-design very large recommendation models from a configuration."""

import importlib

__version__ = "0.1.0"

# Public names and where they live; imported on first use, so that `import neo` loads no torch.
_EXPORTS = {
    "Batch": "neo.data.batch",
    "EmbeddingBagCollection": "neo.sharded.embedding_bag_collection",
    "NeoStrategy": "neo.strategy.neo_strategy",
    "Pooling": "neo.tables.spec",
    "SparseFeatures": "neo.data.batch",
    "SparseOptimizerSpec": "neo.optim.spec",
    "TableSpec": "neo.tables.spec",
}
__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'neo' has no attribute '{name}'")
    return getattr(importlib.import_module(_EXPORTS[name]), name)
