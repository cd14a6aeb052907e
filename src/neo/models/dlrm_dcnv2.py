"""DLRM with the low-rank cross network of DCN v2 (arXiv 2008.13535) in place of the dot interaction.

Shapes: B samples, D embedding dimensions, F sparse features, I = (F + 1) D inputs of the cross network, R its rank.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from neo.data.batch import SparseFeatures
from neo.models.dlrm import common_dim
from neo.models.mlp import bottom, linear, mlp
from neo.models.spec import ModelSpec
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection


class DLRMDCNv2(nn.Module):
    """Bottom MLP, low-rank cross layers over all vectors side by side, top MLP.

    Args:
        embeddings: The tables; all of one dimension D.
        num_dense: Number of dense features; with 0 a learned vector takes the place of the bottom MLP.
        bottom_mlp: Hidden sizes of the bottom MLP.
        top_mlp: Hidden sizes of the top MLP.
        num_cross_layers: Number of cross layers.
        cross_rank: R.
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
        num_cross_layers: int = 3,
        cross_rank: int = 512,
        seed: int = 0,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.embeddings = embeddings
        dim = common_dim(embeddings)
        inputs = dim * (len(embeddings.output_dims) + 1)
        self.bottom = bottom(num_dense, bottom_mlp, dim, generator=generator)
        self.cross = LowRankCross(inputs, cross_rank, num_cross_layers, generator=generator)
        self.top = mlp((inputs, *top_mlp, 1), generator=generator, last_activation=False)

    @classmethod
    def from_spec(
        cls, spec: ModelSpec, *, embeddings: EmbeddingBagCollection, num_dense: int, seed: int
    ) -> "DLRMDCNv2":
        """Build the model that ``spec`` describes."""
        return cls(
            embeddings,
            num_dense=num_dense,
            bottom_mlp=spec.bottom_mlp,
            top_mlp=spec.top_mlp,
            num_cross_layers=spec.num_cross_layers,
            cross_rank=spec.cross_rank,
            seed=seed,
        )

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
        pooled = pending.wait()
        logits: Tensor = self.top(self.cross(torch.cat((x.to(pooled.dtype), pooled), dim=1)))
        return logits.squeeze(1)


class LowRankCross(nn.Module):
    """Layers ``x_{l+1} = x_0 * (W_l (V_l x_l) + b_l) + x_l``.

    Source: arXiv 2008.13535, equation 3.

    Args:
        inputs: I.
        rank: R; ``V_l`` is ``[R, I]`` and ``W_l`` is ``[I, R]``.
        num_layers: Number of layers.
        generator: Source of the initial values.
    """

    def __init__(self, inputs: int, rank: int, num_layers: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                linear(inputs, rank, generator=generator, bias=False), linear(rank, inputs, generator=generator)
            )
            for _ in range(num_layers)
        )

    def forward(self, x0: Tensor) -> Tensor:
        """Return ``[B, I]`` for ``x0`` ``[B, I]``."""
        x = x0
        for layer in self.layers:
            x = torch.addcmul(x, x0, layer(x).to(x0.dtype))
        return x
