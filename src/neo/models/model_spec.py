"""What a configuration says about a model, as one frozen object. Torch-free."""

from dataclasses import dataclass

from neo.tables.spec import Pooling


@dataclass(frozen=True)
class ModelSpec:
    """``model.*``, resolved.

    Attributes:
        name: A name in ``MODELS``, or ``table_list``.
        embedding_dim: Columns of every table.
        bottom_mlp: Hidden sizes of the bottom MLP; a last layer of ``embedding_dim`` is added.
            Empty where a model has none.
        top_mlp: Hidden sizes of the top MLP (``deepfm``: of its deep part); a last layer of 1 is added.
        num_embeddings: Rows per table; None takes them from the data.
        pooling_factors: Mean ids per sample and table; None takes them from the data.
        pooling: How every table pools its bags.
        num_cross_layers: ``dlrm_dcnv2``: number of cross layers; 0 elsewhere.
        cross_rank: ``dlrm_dcnv2``: rank of their weights; 0 elsewhere.
        path: ``table_list``: the file.
        mflops_per_sample: ``table_list``: forward cost of the dense part, in 10^6 floating-point operations.
        dense_parameters: ``table_list``: parameters of the dense part.
    """

    name: str
    embedding_dim: int
    bottom_mlp: tuple[int, ...]
    top_mlp: tuple[int, ...]
    num_embeddings: tuple[int, ...] | None = None
    pooling_factors: tuple[float, ...] | None = None
    pooling: Pooling = Pooling.SUM
    num_cross_layers: int = 0
    cross_rank: int = 0
    path: str | None = None
    mflops_per_sample: float = 0.0
    dense_parameters: int = 0
