"""The dense building blocks: multi-layer perceptrons whose initial values depend on a seed alone.

Shapes: B samples, D embedding dimensions.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


def mlp(sizes: Sequence[int], *, generator: torch.Generator, last_activation: bool) -> nn.Sequential:
    """Build linear layers with ReLU between them.

    Args:
        sizes: Widths from the input to the output.
        generator: Source of the initial values.
        last_activation: Whether a ReLU follows the last layer too.

    Returns:
        A module ``[B, sizes[0]]`` -> ``[B, sizes[-1]]``.
    """
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [linear(inputs, outputs, generator=generator), nn.ReLU(inplace=True)]
    return nn.Sequential(*(layers if last_activation else layers[:-1]))


def linear(inputs: int, outputs: int, *, generator: torch.Generator, bias: bool = True) -> nn.Linear:
    """Build a linear layer with the initial values of the original DLRM.

    Source: arXiv 1906.00091, its code: weights normal with variance 2 / (inputs + outputs), biases normal with
    variance 1 / outputs.
    """
    layer = nn.Linear(inputs, outputs, bias=bias, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        layer.weight.normal_(0.0, math.sqrt(2.0 / (inputs + outputs)), generator=generator)
        if bias:
            layer.bias.normal_(0.0, math.sqrt(1.0 / outputs), generator=generator)
    return layer


class LearnedVector(nn.Module):
    """Stands in for the bottom MLP where there are no dense features: one learned vector for every sample.

    Its dot product with a pooled row gives the row a weight of its own, as in a factorization machine.
    """

    def __init__(self, dim: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.empty(dim).normal_(0.0, math.sqrt(1.0 / dim), generator=generator))

    def forward(self, dense: Tensor) -> Tensor:
        """Return the vector for each row of ``dense`` ``[B, 0]``: ``[B, D]``."""
        return self.vector.expand(dense.shape[0], -1)


def bottom(num_dense: int, hidden: Sequence[int], dim: int, *, generator: torch.Generator) -> nn.Module:
    """Build what turns dense features ``[B, num_dense]`` into ``[B, dim]``."""
    if num_dense == 0:
        return LearnedVector(dim, generator=generator)
    return mlp((num_dense, *hidden, dim), generator=generator, last_activation=True)
