"""The optimizer of the dense part, with the sparse parameter groups beside it."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn, optim

from neo.optim.spec import DenseOptimizerName, DenseOptimizerSpec


def dense_optimizer(
    parameters: Iterable[nn.Parameter], spec: DenseOptimizerSpec, *, sparse_groups: Iterable[Mapping[str, Any]] = ()
) -> optim.Optimizer:
    """Build the one optimizer of a run.

    Args:
        parameters: The dense parameters.
        spec: The optimizer and its hyper-parameters.
        sparse_groups: ``EmbeddingBagCollection.sparse_parameter_group()`` of each collection: groups without values,
            which carry the learning rate of the fused sparse update through schedules and monitors.

    Returns:
        An optimizer with a group named ``dense`` followed by the sparse groups.
    """
    groups: list[dict[str, Any]] = [{"params": list(parameters), "name": "dense"}]
    groups += [dict(group) for group in sparse_groups]
    decay = spec.weight_decay
    match spec.name:
        case DenseOptimizerName.SGD:
            return optim.SGD(groups, lr=spec.lr, momentum=spec.momentum, weight_decay=decay)
        case DenseOptimizerName.ADAGRAD:
            return optim.Adagrad(groups, lr=spec.lr, eps=spec.eps, weight_decay=decay)
        case DenseOptimizerName.ADAM:
            return optim.Adam(groups, lr=spec.lr, betas=(spec.beta1, spec.beta2), eps=spec.eps, weight_decay=decay)
        case DenseOptimizerName.ADAMW:
            return optim.AdamW(groups, lr=spec.lr, betas=(spec.beta1, spec.beta2), eps=spec.eps, weight_decay=decay)
