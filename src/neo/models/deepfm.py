"""DeepFM (arXiv 1703.04247): first-order terms, a factorization machine and a deep part over shared embeddings.

Shapes: B samples, D embedding dimensions, F sparse features, M dense features, N = F + M fields.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from neo.data.batch import SparseFeatures
from neo.models.mlp import mlp
from neo.models.spec import ModelSpec
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection

# Small, since the products of all pairs are added up: an untrained model is to know nothing.
_INITIAL_DEVIATION = 0.01


class DeepFM(nn.Module):
    """``first order + pairwise products + MLP``: the logit of a click.

    Each sparse feature has two tables: vectors of D columns, and first-order weights of one column. Each dense feature
    has a learned vector and a learned weight, which its value multiplies. The vectors of all fields enter both the
    factorization machine and the MLP.

    Source: arXiv 1703.04247, equations 1 to 4, a sparse field's vector being its pooled rows.

    Args:
        embeddings: F tables of D columns, then their F tables of one column, in the same order of features.
        num_dense: M.
        top_mlp: Hidden sizes of the MLP.
        seed: What the initial dense values depend on, and nothing else.

    Raises:
        ValueError: The tables are not of these two kinds.
    """

    def __init__(
        self, embeddings: EmbeddingBagCollection, *, num_dense: int, top_mlp: Sequence[int], seed: int = 0
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.embeddings = embeddings
        self.num_sparse, dim = _fields(embeddings)
        vectors = torch.empty(num_dense, dim).normal_(0.0, _INITIAL_DEVIATION, generator=generator)
        weights = torch.empty(num_dense).normal_(0.0, _INITIAL_DEVIATION, generator=generator)
        self.dense_vectors = nn.Parameter(vectors)
        self.dense_weights = nn.Parameter(weights)
        self.deep = mlp(((self.num_sparse + num_dense) * dim, *top_mlp, 1), generator=generator, last_activation=False)

    @classmethod
    def from_spec(cls, spec: ModelSpec, *, embeddings: EmbeddingBagCollection, num_dense: int, seed: int) -> "DeepFM":
        """Build the model that ``spec`` describes."""
        return cls(embeddings, num_dense=num_dense, top_mlp=spec.top_mlp, seed=seed)

    def forward(self, dense: Tensor, sparse: SparseFeatures) -> Tensor:
        """Return logits.

        Args:
            dense: ``[B, M]``.
            sparse: The sparse features of the same samples.

        Returns:
            ``[B]``.
        """
        pending = self.embeddings.start(sparse)
        weighted = dense @ self.dense_weights  # while the pooled rows travel
        scaled = dense.unsqueeze(2) * self.dense_vectors
        pooled = pending.wait()
        samples, dim = dense.shape[0], self.dense_vectors.shape[1]
        rows, first_order = pooled.split((self.num_sparse * dim, self.num_sparse), dim=1)
        vectors = torch.cat((rows.view(samples, self.num_sparse, dim), scaled.to(rows.dtype)), dim=1)
        deep: Tensor = self.deep(vectors.flatten(1))
        machine: Tensor = first_order.sum(dim=1) + weighted.to(rows.dtype) + pairwise_products(vectors)
        return machine + deep.squeeze(1).to(rows.dtype)


def pairwise_products(vectors: Tensor) -> Tensor:
    """Return ``[B]``: the dot products of all pairs of the vectors ``[B, N, D]``, added up.

    Source: the identity of factorization machines: half of (square of the sum - sum of the squares).
    """
    of_sum = vectors.sum(dim=1).square()
    return (of_sum - vectors.square().sum(dim=1)).sum(dim=1) / 2


def _fields(embeddings: EmbeddingBagCollection) -> tuple[int, int]:
    dims = embeddings.output_dims
    count = len(dims) // 2
    if len(set(dims[:count])) != 1 or dims[count:] != (1,) * count:
        raise ValueError(
            "DeepFM needs a table for each feature, all of one embedding_dim, and then as many of 1 column, "
            f"not widths {dims}"
        )
    return count, dims[0]
