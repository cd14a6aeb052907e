import pytest

from neo.errors import ConfigError
from neo.models.spec import (
    EMBEDDINGS_PATH,
    MODELS,
    ModelConfig,
    ModelKind,
    ModelSpec,
    mlp_cost,
    register_model,
    tables_of,
)
from neo.tables.spec import FeatureSpec, Pooling

FEATURES = (FeatureSpec("user", 100, 1.0), FeatureSpec("items", 50, 4.5, weighted=True))


def findings(config: ModelConfig) -> list[str]:
    return [str(finding) for finding in config.validate()]


@pytest.mark.parametrize("name", ["dlrm", "dlrm_dcnv2", "deepfm"])
def test_the_defaults_are_valid(name: str) -> None:
    assert ModelConfig(name=name).validate() == []
    spec = ModelConfig(name=name).to_spec()
    assert (spec.embedding_dim, spec.bottom_mlp, spec.top_mlp) == (16, () if name == "deepfm" else (64,), (64, 64))
    assert (spec.num_cross_layers, spec.cross_rank) == ((3, 512) if name == "dlrm_dcnv2" else (0, 0))


def test_every_registered_model_is_importable_by_its_name() -> None:
    assert [MODELS.get(name).__name__ for name in MODELS.names()] == ["DeepFM", "DLRM", "DLRMDCNv2"]
    assert EMBEDDINGS_PATH == "model.embeddings"


def test_unknown_model_names_the_nearest() -> None:
    assert findings(ModelConfig(name="dlrm_dcn")) == [
        "name: 'dlrm_dcn' is not a model; did you mean 'dlrm_dcnv2'? Choices: deepfm, dlrm, dlrm_dcnv2, table_list"
    ]


def test_all_wrong_values_are_found_together() -> None:
    config = ModelConfig(
        embedding_dim=0,
        bottom_mlp=[64, 0],
        num_embeddings=[5, -1],
        pooling_factors=[1.0, float("nan"), 2.0],
        pooling="max",
    )
    assert findings(config) == [
        "embedding_dim: 0 is below the limit 1; write 1 to 2^20",
        "bottom_mlp[1]: 0 is below the limit 1; write 1 to 2^20",
        "num_embeddings[1]: -1 is below the limit 1; write 1 to 2^48",
        "pooling_factors[1]: nan is not a finite number above 0",
        "pooling_factors: 3 entries, but num_embeddings has 2; give both one entry per table",
        "pooling: 'max' is not a pooling; did you mean 'mean'? Choices: mean, sum",
    ]


def test_an_empty_list_is_no_list_of_tables() -> None:
    assert findings(ModelConfig(num_embeddings=[])) == [
        "num_embeddings: [] lists no table; leave it out to take it from the data"
    ]


def test_keys_without_effect_are_refused() -> None:
    assert findings(ModelConfig(cross_rank=8, path="t.csv")) == [
        "path: t.csv has no effect on 'dlrm'; leave it out, or use model=table_list",
        "cross_rank: 8 has no effect on 'dlrm'; leave it out, or use model=dlrm_dcnv2",
    ]
    assert findings(ModelConfig(name="table_list", path="t.csv", embedding_dim=4, cross_rank=2)) == [
        "embedding_dim: 4 has no effect on 'table_list'; leave it out, or use model=dlrm",
        "cross_rank: 2 has no effect on 'table_list'; leave it out, or use model=dlrm_dcnv2",
    ]


def test_deepfm_has_no_bottom_mlp() -> None:
    assert findings(ModelConfig(name="deepfm", bottom_mlp=[8])) == [
        "bottom_mlp: [8] has no effect on 'deepfm'; leave it out, or use model=dlrm"
    ]


def test_deepfm_has_a_second_table_of_one_column_for_each_feature() -> None:
    tables = tables_of(ModelConfig(name="deepfm", embedding_dim=8, pooling="mean").to_spec(), FEATURES)
    assert [(t.name, t.num_embeddings, t.embedding_dim, t.feature_names) for t in tables] == [
        ("user", 100, 8, ("user",)),
        ("items", 50, 8, ("items",)),
        ("first_order_user", 100, 1, ("user",)),
        ("first_order_items", 50, 1, ("items",)),
    ]
    assert [(t.pooling, t.pooling_factor, t.weighted) for t in tables[2:]] == [
        (Pooling.MEAN, 1.0, False),
        (Pooling.MEAN, 4.5, True),
    ]


def test_a_name_of_neo_is_taken() -> None:
    with pytest.raises(ValueError, match="model 'table_list' is registered twice"):
        register_model("table_list", "mine:Model", ModelKind(lambda model, dense, features: mlp_cost((1, 1))))
    with pytest.raises(ValueError, match="model 'dlrm' is registered twice"):
        register_model("dlrm", "mine:Model", ModelKind(lambda model, dense, features: mlp_cost((1, 1))))


def test_table_list_needs_a_path() -> None:
    assert findings(ModelConfig(name="table_list", mflops_per_sample=-1.0)) == [
        "mflops_per_sample: -1.0 is below the limit 0; write 0 to 1000000000000",
        "path: table_list needs a file; write model.path=FILE.csv",
    ]


def test_tables_come_from_the_features() -> None:
    tables = tables_of(ModelConfig(pooling="mean", embedding_dim=8).to_spec(), FEATURES)
    assert [(t.name, t.num_embeddings, t.embedding_dim, t.feature_names) for t in tables] == [
        ("user", 100, 8, ("user",)),
        ("items", 50, 8, ("items",)),
    ]
    assert [(t.pooling, t.pooling_factor, t.weighted) for t in tables] == [
        (Pooling.MEAN, 1.0, False),
        (Pooling.MEAN, 4.5, True),
    ]


def test_lists_of_another_length_than_the_features_are_refused() -> None:
    spec = ModelSpec("dlrm", 4, (), (), num_embeddings=(7,), pooling_factors=(1.0, 2.0, 3.0))
    with pytest.raises(ConfigError) as error:
        tables_of(spec, FEATURES)
    assert [str(finding) for finding in error.value.findings] == [
        "model.num_embeddings: 1 entries for 2 features; give one entry per feature",
        "model.pooling_factors: 3 entries for 2 features; give one entry per feature",
    ]


def test_data_without_sparse_features_is_refused() -> None:
    with pytest.raises(ConfigError, match="the data has no sparse feature"):
        tables_of(ModelConfig().to_spec(), ())
