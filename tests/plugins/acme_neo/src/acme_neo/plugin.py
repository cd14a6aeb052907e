"""What the package adds to neo; imports no torch."""

from neo.comms.spec import CODECS
from neo.config.plugins import Plugin
from neo.models.spec import DenseCost, ModelKind, ModelSpec, register_model
from neo.ops.spec import Capability, Device, register_backend
from neo.tables.spec import WeightsDtype


def plugin() -> Plugin:
    """Register the backend ``acme``, the codec ``acme_fp64`` and the model ``acme_linear``."""
    able = Capability("acme", Device.CPU, frozenset({"sgd"}), frozenset({WeightsDtype.FP32}))
    register_backend("acme", "acme_neo.backend:AcmeLookup", (able,))
    CODECS.register("acme_fp64", "acme_neo.codec:AcmeFp64")
    reads = ("embedding_dim", "num_embeddings", "pooling_factors", "pooling")
    register_model("acme_linear", "acme_neo.model:AcmeLinear", ModelKind(_cost, reads=reads))
    return Plugin(config_package="acme_neo.conf")


def _cost(model: ModelSpec, num_dense: int, num_features: int) -> DenseCost:
    inputs = num_dense + num_features * model.embedding_dim
    return DenseCost(parameters=inputs + 1, flops=2.0 * inputs)
