"""A model of the package's own: logistic regression on dense features and pooled rows."""

import torch
from torch import Tensor, nn

from neo.data.batch import SparseFeatures
from neo.models.spec import ModelSpec
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection


class AcmeLinear(nn.Module):
    """One linear layer."""

    def __init__(self, embeddings: EmbeddingBagCollection, *, num_dense: int, seed: int) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.top = nn.Linear(num_dense + sum(embeddings.output_dims), 1)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            self.top.weight.normal_(0.0, 0.1, generator=generator)
            self.top.bias.zero_()

    @classmethod
    def from_spec(
        cls, spec: ModelSpec, *, embeddings: EmbeddingBagCollection, num_dense: int, seed: int
    ) -> "AcmeLinear":
        """Build the model that ``spec`` describes."""
        return cls(embeddings, num_dense=num_dense, seed=seed)

    def forward(self, dense: Tensor, sparse: SparseFeatures) -> Tensor:
        """Return logits ``[B]``."""
        pooled = self.embeddings.start(sparse).wait()
        logits: Tensor = self.top(torch.cat((dense, pooled), dim=1))
        return logits.squeeze(1)
