"""The embedding collections of a module, and their parameter groups in its optimizer."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from neo.errors import UnsupportedError
from neo.optim.spec import SparseOptimizerSpec
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.tables.spec import TableSpec


def find_collections(module: nn.Module) -> dict[str, EmbeddingBagCollection]:
    """Return every collection in ``module`` by its path, in the order of registration.

    Raises:
        UnsupportedError: There is none.
    """
    found = {path: child for path, child in module.named_modules() if isinstance(child, EmbeddingBagCollection)}
    if not found:
        raise UnsupportedError(
            f"{type(module).__name__} holds no EmbeddingBagCollection, so there is nothing to shard; make one an "
            f"attribute of the module, or train it with Lightning's DDPStrategy"
        )
    return found


def plan_keys(path: str, collection: EmbeddingBagCollection) -> dict[str, str]:
    """Return the plan's key of each table of a collection: ``module.path.table``."""
    return {table.name: f"{path}.{table.name}" if path else table.name for table in collection.tables}


def tables_by_key(collections: Mapping[str, EmbeddingBagCollection]) -> dict[str, TableSpec]:
    """Return all tables by their plan key, in declared order."""
    return {
        plan_keys(path, collection)[table.name]: table
        for path, collection in collections.items()
        for table in collection.tables
    }


def optimizers_by_key(collections: Mapping[str, EmbeddingBagCollection]) -> dict[str, SparseOptimizerSpec]:
    """Return the sparse optimizer of every table by its plan key."""
    return {
        plan_keys(path, collection)[table.name]: collection.optimizer_of(table.name)
        for path, collection in collections.items()
        for table in collection.tables
    }


def sparse_groups(
    collections: Mapping[str, EmbeddingBagCollection], optimizers: Sequence[Optimizer]
) -> dict[str, dict[str, Any]]:
    """Return the parameter group of each collection, by path.

    Raises:
        UnsupportedError: A collection has none; the message is the line to write.
    """
    groups: dict[str, dict[str, Any]] = {}
    for path, collection in collections.items():
        owned = [g for optimizer in optimizers for g in optimizer.param_groups if collection.owns_group(g)]
        if not any(group["params"][0].numel() == 0 and len(group["params"]) == 1 for group in owned):
            raise UnsupportedError(_missing_group(path, optimizers))
        groups[path] = owned[0]
    return groups


def _missing_group(path: str, optimizers: Sequence[Optimizer]) -> str:
    kind = type(optimizers[0]).__name__ if optimizers else "Adam"
    attribute = f"self.{path}" if path else "self"
    return (
        f"configure_optimizers gives the collection '{path}' no parameter group, so its learning rate would ignore "
        f"schedules and monitors; write\n"
        f'    torch.optim.{kind}([{{"params": self.parameters()}}, '
        f"{attribute}.sparse_parameter_group()], lr=...)"
    )
