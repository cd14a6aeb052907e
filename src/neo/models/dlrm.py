"""DLRM with dot interaction (arXiv 1906.00091).

Shapes: B samples, D embedding dimensions, F sparse features, N = F + 1 interacting vectors, P = N (N - 1) / 2 pairs.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from neo.data.batch import SparseFeatures
from neo.models.mlp import bottom, mlp
from neo.models.spec import ModelSpec
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection


class DLRM(nn.Module):
    """Bottom MLP, dot products of all pairs of vectors, top MLP.

    Args:
        embeddings: The tables; all of one dimension D.
        num_dense: Number of dense features; with 0 a learned vector takes the place of the bottom MLP.
        bottom_mlp: Hidden sizes of the bottom MLP.
        top_mlp: Hidden sizes of the top MLP.
        seed: What the initial dense values depend on, and nothing else.

    Raises:
        ValueError: The tables differ in their dimension.
    """

    def __init__(
        self,
        embeddings: EmbeddingBagCollection,
        *,
        num_dense: int,
        bottom_mlp: Sequence[int],
        top_mlp: Sequence[int],
        seed: int = 0,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.embeddings = embeddings
        dim = common_dim(embeddings)
        num_vectors = len(embeddings.output_dims) + 1
        self.bottom = bottom(num_dense, bottom_mlp, dim, generator=generator)
        self.interaction = DotInteraction(num_vectors)
        self.top = mlp((dim + self.interaction.num_pairs, *top_mlp, 1), generator=generator, last_activation=False)

    @classmethod
    def from_spec(cls, spec: ModelSpec, *, embeddings: EmbeddingBagCollection, num_dense: int, seed: int) -> "DLRM":
        """Build the model that ``spec`` describes."""
        return cls(embeddings, num_dense=num_dense, bottom_mlp=spec.bottom_mlp, top_mlp=spec.top_mlp, seed=seed)

    def forward(self, dense: Tensor, sparse: SparseFeatures) -> Tensor:
        """Return logits.

        Args:
            dense: ``[B, num_dense]``.
            sparse: The sparse features of the same samples.

        Returns:
            ``[B]``.
        """
        pending = self.embeddings.start(sparse)
        x = self.bottom(dense)  # while the pooled rows travel
        vectors = stack_vectors(x, pending.wait())
        logits: Tensor = self.top(torch.cat((x, self.interaction(vectors)), dim=1))
        return logits.squeeze(1)


class DotInteraction(nn.Module):
    """Dot products of all pairs of distinct vectors.

    Args:
        num_vectors: N.
    """

    pairs: Tensor
    pair_of: Tensor

    def __init__(self, num_vectors: int) -> None:
        super().__init__()
        first, second = torch.tril_indices(num_vectors, num_vectors, offset=-1)
        self.num_pairs = first.numel()
        pair_of = torch.full((num_vectors * num_vectors,), self.num_pairs)
        for position in (first * num_vectors + second, second * num_vectors + first):
            pair_of[position] = torch.arange(self.num_pairs)
        self.register_buffer("pairs", first * num_vectors + second, persistent=False)
        self.register_buffer("pair_of", pair_of, persistent=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return ``[B, P]`` for ``vectors`` ``[B, N, D]``, in the order (1,0), (2,0), (2,1), (3,0), ..."""
        products: Tensor = _PairProducts.apply(vectors, self.pairs, self.pair_of)  # type: ignore[no-untyped-call]
        return products


class _PairProducts(torch.autograd.Function):
    """The pairs' products; backward builds the symmetric gradient by one gather and needs one product, not two.

    On the CPU this halves the time against indexing, whose backward scatters.
    """

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, pairs: Tensor, pair_of: Tensor) -> Tensor:
        ctx.save_for_backward(vectors, pair_of)
        return torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, pairs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        vectors, pair_of = ctx.saved_tensors
        samples, num_vectors, _ = vectors.shape
        padded = torch.cat((gradient, gradient.new_zeros(samples, 1)), dim=1)  # the last one is for the diagonal
        symmetric = padded.index_select(1, pair_of).view(samples, num_vectors, num_vectors)
        return torch.bmm(symmetric.to(vectors.dtype), vectors), None, None


def stack_vectors(x: Tensor, pooled: Tensor) -> Tensor:
    """Return ``[B, N, D]`` from the bottom's output ``[B, D]`` and the pooled rows ``[B, F * D]``."""
    samples, dim = x.shape
    return torch.cat((x.to(pooled.dtype), pooled), dim=1).view(samples, 1 + pooled.shape[1] // dim, dim)


def common_dim(embeddings: EmbeddingBagCollection) -> int:
    """Return the dimension of all tables.

    Raises:
        ValueError: They differ; the message names the tables.
    """
    dims = {table.name: table.embedding_dim for table in embeddings.tables}
    if len(set(dims.values())) != 1:
        raise ValueError(f"the interaction needs tables of one embedding_dim, not {dims}")
    return next(iter(dims.values()))
