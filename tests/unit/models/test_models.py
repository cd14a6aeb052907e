from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from neo.data.batch import SparseFeatures
from neo.models.deepfm import DeepFM
from neo.models.dlrm import DLRM, DotInteraction
from neo.models.dlrm_dcnv2 import DLRMDCNv2, LowRankCross
from neo.models.spec import MODELS, ModelConfig, ModelSpec, dense_parameters, flops_per_sample
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.tables.spec import TableSpec

MakeEmbeddings = Callable[..., EmbeddingBagCollection]
NAMES = ("dlrm", "dlrm_dcnv2", "deepfm")


def spec_of(name: str, dim: int = 4) -> ModelSpec:
    config = ModelConfig(name=name, embedding_dim=dim, top_mlp=[5, 7])
    if name != "deepfm":
        config.bottom_mlp = [6]
    if name == "dlrm_dcnv2":
        config.num_cross_layers, config.cross_rank = 2, 3
    return config.to_spec()


def build(name: str, embeddings: EmbeddingBagCollection, num_dense: int, seed: int = 3) -> nn.Module:
    model = MODELS.get(name)
    built: nn.Module = model.from_spec(spec_of(name), embeddings=embeddings, num_dense=num_dense, seed=seed)  # type: ignore[attr-defined]
    return built


def batch(size: int, num_dense: int, num_features: int = 3) -> tuple[Tensor, SparseFeatures]:
    generator = torch.Generator().manual_seed(size)
    lengths = torch.randint(0, 3, (num_features * size,), generator=generator)
    values = torch.randint(0, 10, (int(lengths.sum()),), generator=generator)
    return torch.randn(size, num_dense, generator=generator), SparseFeatures(
        list("abcdef"[:num_features]), lengths, values
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("num_dense", [0, 1, 5])
@pytest.mark.parametrize("size", [0, 1, 8])
def test_logits_are_one_per_sample(name: str, num_dense: int, size: int, make_embeddings: MakeEmbeddings) -> None:
    model = build(name, make_embeddings(model=name), num_dense)
    logits = model(*batch(size, num_dense))
    assert logits.shape == (size,)
    logits.sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("num_dense", [0, 5])
@pytest.mark.parametrize("num_features", [1, 3])
def test_the_cost_is_that_of_the_real_module(
    name: str, num_dense: int, num_features: int, make_embeddings: MakeEmbeddings
) -> None:
    embeddings = make_embeddings(num_features=num_features, model=name)
    model = build(name, embeddings, num_dense)
    counted = sum(parameter.numel() for parameter in model.parameters())
    assert dense_parameters(spec_of(name), num_dense=num_dense, tables=embeddings.tables) == counted
    linears = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    products = sum(2 * layer.weight.numel() for layer in linears)
    vectors = num_features + 1
    fields = num_features + num_dense
    machine = num_features + 2 * num_dense + num_dense * 4 + 3 * fields * 4 + 3 * 4
    rest = {"dlrm": 2 * vectors**2 * 4, "dlrm_dcnv2": 2 * 3 * vectors * 4, "deepfm": machine}[name]
    assert flops_per_sample(spec_of(name), num_dense=num_dense, tables=embeddings.tables) == products + rest


def test_the_cost_of_a_table_list_is_what_the_user_says() -> None:
    model = ModelConfig(name="table_list", path="t.csv", mflops_per_sample=2.5, dense_parameters=7).to_spec()
    tables = (TableSpec("a", 10, 4, ("a",)),)
    assert flops_per_sample(model, num_dense=0, tables=tables) == 2.5e6
    assert dense_parameters(model, num_dense=0, tables=tables) == 7


@pytest.mark.parametrize("name", NAMES)
def test_initial_values_depend_on_the_seed_alone(name: str, make_embeddings: MakeEmbeddings) -> None:
    torch.manual_seed(0)
    first = build(name, make_embeddings(model=name), 5).state_dict()
    torch.manual_seed(99)
    state_before = torch.get_rng_state()
    second = build(name, make_embeddings(model=name), 5).state_dict()
    assert torch.equal(torch.get_rng_state(), state_before)
    other = build(name, make_embeddings(model=name), 5, seed=4).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_dot_interaction_is_every_pair_once() -> None:
    vectors = torch.randn(6, 4, 3, dtype=torch.float64, requires_grad=True)
    pairs = [(vectors[:, i] * vectors[:, j]).sum(dim=1) for i in range(4) for j in range(i)]
    interaction = DotInteraction(4).double()
    torch.testing.assert_close(interaction(vectors), torch.stack(pairs, dim=1))
    assert torch.autograd.gradcheck(interaction, (vectors,))
    assert interaction.state_dict() == {}


def test_dlrm_is_the_published_formula(make_embeddings: MakeEmbeddings) -> None:
    model = build("dlrm", make_embeddings(), 5)
    assert isinstance(model, DLRM)
    dense, sparse = batch(8, 5)
    x = model.bottom(dense)
    rows = [x, *model.embeddings.start(sparse).wait().split(4, dim=1)]
    pairs = [(rows[i] * rows[j]).sum(dim=1, keepdim=True) for i in range(4) for j in range(i)]
    torch.testing.assert_close(model(dense, sparse), model.top(torch.cat((x, *pairs), dim=1)).squeeze(1))


def test_cross_layers_are_the_published_formula() -> None:
    cross = LowRankCross(6, 2, 2, generator=torch.Generator().manual_seed(0))
    x0 = torch.randn(5, 6)
    expected = x0
    for layer in cross.layers:
        down, up = layer.children()
        expected = x0 * (expected @ down.weight.T @ up.weight.T + up.bias) + expected  # type: ignore[operator]
    torch.testing.assert_close(cross(x0), expected)


@pytest.mark.parametrize("name", NAMES)
def test_an_untrained_model_knows_nothing(name: str, make_embeddings: MakeEmbeddings) -> None:
    embeddings: Any = make_embeddings(dim=4, model=name)
    embeddings.rows = [rows * 0.03 for rows in embeddings.rows]  # the size that a table of 1,000 rows begins with
    dense, sparse = batch(256, 13)
    logits = build(name, embeddings, 13)(dense, sparse)
    labels = torch.arange(256) % 2
    loss = nn.functional.binary_cross_entropy_with_logits(logits, labels.float())
    assert float(loss.detach()) < 0.8  # ln 2 = 0.693


@pytest.mark.parametrize("num_dense", [0, 5])
def test_deepfm_is_the_published_formula(num_dense: int, make_embeddings: MakeEmbeddings) -> None:
    model = build("deepfm", make_embeddings(model="deepfm"), num_dense)
    assert isinstance(model, DeepFM)
    with torch.no_grad():  # they begin so small that a mistake with them would not be seen
        model.dense_vectors.mul_(100.0)
        model.dense_weights.mul_(100.0)
    dense, sparse = batch(8, num_dense)
    pooled = model.embeddings.start(sparse).wait()
    values, widths = dense.unbind(1), [4, 4, 4, 1, 1, 1]
    first, second, third, *first_order = pooled.split(widths, dim=1)
    vectors = [first, second, third, *(x[:, None] * v for x, v in zip(values, model.dense_vectors, strict=True))]
    expected = model.deep(torch.cat(vectors, dim=1)).squeeze(1)
    for weight in first_order:
        expected = expected + weight.squeeze(1)
    for x, weight in zip(values, model.dense_weights, strict=True):
        expected = expected + x * weight
    for i in range(len(vectors)):
        for j in range(i):
            expected = expected + (vectors[i] * vectors[j]).sum(dim=1)
    torch.testing.assert_close(model(dense, sparse), expected)


def test_deepfm_needs_two_tables_of_each_feature(make_embeddings: MakeEmbeddings) -> None:
    with pytest.raises(ValueError, match=r"and then as many of 1 column, not widths \(4, 4, 4\)"):
        build("deepfm", make_embeddings(), 5)


@pytest.mark.parametrize("name", NAMES)
def test_bf16_autocast_trains_fp32_weights(name: str, make_embeddings: MakeEmbeddings) -> None:
    model = build(name, make_embeddings(model=name), 5)
    dense, sparse = batch(8, 5)
    exact = model(dense, sparse)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(dense, sparse)
    torch.testing.assert_close(logits.float(), exact, rtol=0.05, atol=0.1)  # bf16 keeps 8 bits
    logits.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())


@pytest.mark.parametrize("kind", [DLRM, DLRMDCNv2])
def test_tables_of_different_dimensions_are_refused(kind: type, make_embeddings: MakeEmbeddings) -> None:
    embeddings = make_embeddings()
    embeddings.tables = (TableSpec("a", 5, 4, ("a",)), TableSpec("b", 5, 8, ("b",)))
    with pytest.raises(ValueError, match=r"needs tables of one embedding_dim, not \{'a': 4, 'b': 8\}"):
        kind(embeddings, num_dense=1, bottom_mlp=(), top_mlp=())
