"""The registered models as a plan sees them: which keys each reads, its tables, and what its dense part costs.

Torch-free. F sparse features, D ``embedding_dim``, N vectors that interact.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from neo.models.model_spec import ModelSpec
from neo.registry import Registry
from neo.tables.spec import FeatureSpec, TableSpec

TABLE_LIST = "table_list"
"""The model that is only planned: a list of tables in a file."""

FIRST_ORDER = "first_order_"
"""``deepfm``: what the name of a feature's 1-wide table begins with."""

BOTTOM = ("bottom_mlp",)
CROSS = ("num_cross_layers", "cross_rank")
COMMON_SIZES = ("embedding_dim", "top_mlp", "num_embeddings", "pooling_factors", "pooling")
LISTED = ("path", "mflops_per_sample", "dense_parameters")

MODELS: Registry[type] = Registry("model")


def one_table_per_feature(model: ModelSpec, features: Sequence[FeatureSpec]) -> tuple[TableSpec, ...]:
    """Return a table of ``embedding_dim`` columns for each feature, named like it."""
    return tuple(_table(model, feature, feature.name, model.embedding_dim) for feature in features)


@dataclass(frozen=True)
class DenseCost:
    """What the dense part of a model is made of, in numbers.

    Attributes:
        parameters: Its parameters.
        flops: Floating-point operations of one sample's forward pass; a multiply-add counts as two.
    """

    parameters: int
    flops: float


@dataclass(frozen=True)
class ModelKind:
    """What is known of a registered model without torch.

    Attributes:
        cost: ``(model, num_dense, num_features)`` -> cost of the dense part.
        reads: The keys of ``model.*`` that have an effect on it, beside ``name``; any other is refused.
        tables: ``(model, features)`` -> its tables, in the order of their outputs.
    """

    cost: Callable[[ModelSpec, int, int], DenseCost]
    reads: tuple[str, ...] = (*COMMON_SIZES, *BOTTOM)
    tables: Callable[[ModelSpec, Sequence[FeatureSpec]], tuple[TableSpec, ...]] = one_table_per_feature


_KINDS: dict[str, ModelKind] = {}


def register_model(name: str, target: str, kind: ModelKind) -> None:
    """Add a model: the place of its class (with ``from_spec``, as ``neo.models.dlrm.DLRM``) and its torch-free face.

    Raises:
        ValueError: The name is taken, or the target is not ``module:attr``.
    """
    if name == TABLE_LIST:
        raise ValueError(f"model '{name}' is registered twice: neo has one of this name")
    MODELS.register(name, target)
    _KINDS[name] = kind


def kind_of(name: str) -> ModelKind:
    """Return the torch-free face of a registered model, or of a table list."""
    return _LISTED_KIND if name == TABLE_LIST else _KINDS[name]


def mlp_cost(sizes: Sequence[int]) -> DenseCost:
    """Return the cost of an MLP from its widths; its activations are not counted."""
    return DenseCost(
        parameters=sum(inputs * outputs + outputs for inputs, outputs in pairwise(sizes)),
        flops=float(sum(2 * inputs * outputs for inputs, outputs in pairwise(sizes))),
    )


def _table(model: ModelSpec, feature: FeatureSpec, name: str, dim: int) -> TableSpec:
    return TableSpec(
        name=name,
        num_embeddings=feature.num_embeddings,
        embedding_dim=dim,
        feature_names=(feature.name,),
        pooling=model.pooling,
        weighted=feature.weighted,
        pooling_factor=feature.pooling_factor,
    )


def _deepfm_tables(model: ModelSpec, features: Sequence[FeatureSpec]) -> tuple[TableSpec, ...]:
    first_order = tuple(_table(model, feature, FIRST_ORDER + feature.name, 1) for feature in features)
    return one_table_per_feature(model, features) + first_order


def _bottom_cost(model: ModelSpec, num_dense: int) -> DenseCost:
    if num_dense == 0:
        return DenseCost(model.embedding_dim, 0.0)  # a learned vector takes its place
    return mlp_cost((num_dense, *model.bottom_mlp, model.embedding_dim))


def _dlrm_cost(model: ModelSpec, num_dense: int, num_features: int) -> DenseCost:
    vectors, dim = 1 + num_features, model.embedding_dim
    bottom, pairs = _bottom_cost(model, num_dense), vectors * (vectors - 1) // 2
    top = mlp_cost((dim + pairs, *model.top_mlp, 1))
    return DenseCost(bottom.parameters + top.parameters, bottom.flops + 2 * vectors * vectors * dim + top.flops)


def _dcnv2_cost(model: ModelSpec, num_dense: int, num_features: int) -> DenseCost:
    width, layers, rank = (1 + num_features) * model.embedding_dim, model.num_cross_layers, model.cross_rank
    bottom, top = _bottom_cost(model, num_dense), mlp_cost((width, *model.top_mlp, 1))
    return DenseCost(
        bottom.parameters + layers * (2 * width * rank + width) + top.parameters,
        bottom.flops + layers * (4 * width * rank + 3 * width) + top.flops,
    )


def _deepfm_cost(model: ModelSpec, num_dense: int, num_features: int) -> DenseCost:
    vectors, dim = num_features + num_dense, model.embedding_dim
    deep = mlp_cost((vectors * dim, *model.top_mlp, 1))
    first_order = num_features + 2 * num_dense
    scaled = num_dense * dim  # each dense value times its vector
    second_order = 3 * vectors * dim + 3 * dim  # sum of vectors, sum of squares; square, subtract, add up
    return DenseCost(num_dense * (1 + dim) + deep.parameters, first_order + scaled + second_order + deep.flops)


def _listed_cost(model: ModelSpec, num_dense: int, num_features: int) -> DenseCost:
    return DenseCost(model.dense_parameters, model.mflops_per_sample * 1e6)


_LISTED_KIND = ModelKind(_listed_cost, reads=LISTED)
register_model("dlrm", "neo.models.dlrm:DLRM", ModelKind(_dlrm_cost))
register_model(
    "dlrm_dcnv2", "neo.models.dlrm_dcnv2:DLRMDCNv2", ModelKind(_dcnv2_cost, reads=(*COMMON_SIZES, *BOTTOM, *CROSS))
)
register_model("deepfm", "neo.models.deepfm:DeepFM", ModelKind(_deepfm_cost, reads=COMMON_SIZES, tables=_deepfm_tables))
