"""``resolve``: from Hydra's configuration to frozen specs."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from neo.config import cross_checks
from neo.config.purpose import Purpose
from neo.config.resolve import read_resolved, resolve, resolve_content, write_resolved
from neo.config.run_config import RunConfig
from neo.config.store import register
from neo.errors import ConfigError
from neo.ops import spec as ops_spec
from neo.ops.spec import Capability, Device
from neo.strategy.spec import Precision
from neo.tables.spec import WeightsDtype


@pytest.fixture(autouse=True)
def _host_without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_checks, "num_gpus", lambda: 0)


def _composed(*overrides: str) -> DictConfig:
    register()
    GlobalHydra.instance().clear()
    with initialize_config_module("neo.conf", version_base="1.3"):
        return compose("config", overrides=list(overrides))


def _resolved(*overrides: str) -> RunConfig:
    return resolve(_composed(*overrides))


def test_defaults_of_the_contract() -> None:
    run = _resolved()
    assert run.hardware.name == "ZionEX"
    assert run.hardware.num_nodes == 1
    assert (run.model.name, run.data.name, run.ops.backend) == ("dlrm", "synthetic", "auto")
    assert run.sharding.type == "auto"
    assert (run.comms.forward, run.comms.backward) == ("fp32", "fp32")
    assert (run.trainer.max_epochs, run.trainer.max_steps, run.trainer.devices) == (1, None, None)
    assert run.trainer.precision is Precision.FP32_TRUE
    assert run.optim.sparse.name == "rowwise_adagrad"


def test_overrides_reach_the_specs() -> None:
    run = _resolved(
        "trainer.devices=3", "++sharding.tables.sparse_0.type=row_wise", "trainer.precision=bf16-mixed", "seed=7"
    )
    assert run.trainer.devices == 3
    assert run.sharding.tables[0].name == "sparse_0"
    assert run.trainer.precision is Precision.BF16_MIXED
    assert run.seed == 7


def test_resolve_reports_every_group_at_once() -> None:
    config = _composed("trainer.devices=0", "optim.sparse.lr=-1", "launch.threads_per_worker=0", "seed=-1")
    with pytest.raises(ConfigError) as caught:
        resolve(config)
    assert str(caught.value) == "\n".join(
        [
            "4 mistakes in the configuration:",
            "  seed: -1 is outside [0, 2^63)",
            "  optim.sparse.lr: -1.0 is below the limit 0; write 0 or more",
            "  trainer.devices: 0 is below the limit 1; write 1 to 1024",
            "  launch.threads_per_worker: 0 is below the limit 1; write 1 to 1024",
        ]
    )


def test_resolved_yaml_gives_the_same_run_and_knows_what_auto_became(tmp_path: Path) -> None:
    config = _composed("++sharding.tables.sparse_0.type=row_wise", "data.global_batch_size=512")
    path = tmp_path / "resolved.yaml"
    write_resolved(path, config, {"trainer.accelerator": "cpu"})
    assert read_resolved(path) == _resolved(
        "++sharding.tables.sparse_0.type=row_wise", "data.global_batch_size=512", "trainer.accelerator=cpu"
    )
    text = path.read_text()
    for key in ("lr:", "eps:", "beta1:", "weight_decay:", "initial_accumulator:"):
        assert key in text


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["model=dlrm_dcnv2"],
        ["data=csv", "data.path={file}", "data.label=label", "data.categorical=[color]", "data.encoding=hash"],
        ["data=csv", "data.path={file}", "data.label=label", "data.categorical=[color]", "data.shuffle=false"],
        ["data=criteo", "data.path={file}"],
    ],
)
def test_resolved_yaml_holds_the_defaults_and_gives_the_same_run(tmp_path: Path, overrides: list[str]) -> None:
    file = tmp_path / "data.csv"
    file.write_text("label,color\n1,red\n")
    given = [override.format(file=file) for override in overrides]
    path = tmp_path / "resolved.yaml"
    write_resolved(path, _composed(*given), {})
    assert read_resolved(path) == _resolved(*given)
    content = OmegaConf.load(path)
    assert (content.model.embedding_dim, content.model.bottom_mlp, content.model.top_mlp) == (16, [64], [64, 64])
    assert content.model.pooling == "sum"
    assert content.model.cross_rank == (512 if "model=dlrm_dcnv2" in given else None)
    if not overrides or "model" in overrides[0]:
        assert (content.data.num_samples, content.data.zipf_exponent, content.data.hash_buckets) == (10**6, 1.05, None)
    elif given[0] == "data=criteo":
        assert (content.data.encoding, content.data.hash_buckets, content.data.label) == ("hash", 100_000, None)
    else:
        hashed = "data.encoding=hash" in given
        assert content.data.hash_buckets == (100_000 if hashed else None)
        assert content.data.shuffle_window == (65_536 if hashed else None)
        assert content.data.dense_transform == "standardize"


def test_a_broken_resolved_yaml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "resolved.yaml"
    OmegaConf.save(OmegaConf.create({"trainer": {"devicez": 1}}), path)
    with pytest.raises(ConfigError, match=r"trainer\.devicez: no such key \(given '1'\); did you mean"):
        read_resolved(path)
    with pytest.raises(ConfigError, match="configuration: is a list, not a mapping of groups"):
        resolve_content([1], purpose=None)


def test_an_interpolation_that_leads_nowhere() -> None:
    config = _composed("data.path=${nope}")
    with pytest.raises(ConfigError, match=r"data\.path: cannot be resolved: Interpolation key 'nope' not found"):
        resolve(config)


def test_fingerprint_changes_with_what_is_trained_only() -> None:
    base = _resolved().fingerprint()
    assert base == _resolved().fingerprint()
    assert base == _resolved("trainer.progress_bar=false", "launch.threads_per_worker=2").fingerprint()
    assert base == _resolved("hardware=dgx_h100").fingerprint()
    assert base == _resolved("data.num_workers=0").fingerprint()
    assert base != _resolved("optim.sparse.lr=0.5").fingerprint()
    assert base != _resolved("seed=1").fingerprint()
    assert len(base) == 16


def test_planning_looks_at_the_named_machine_and_training_at_this_host() -> None:
    config = _composed("ops=fbgemm", "optim.sparse.name=adam")
    with pytest.raises(ConfigError, match=r"ops\.backend: fbgemm has no adam on cpu"):
        resolve(config)
    with pytest.raises(ConfigError, match=r"ops\.backend: fbgemm has no adam on cuda"):
        resolve(config, purpose=Purpose.PLAN)
    local = _composed("ops=fbgemm", "optim.sparse.name=adam", "hardware=local", "trainer.accelerator=cpu")
    with pytest.raises(ConfigError, match=r"ops\.backend: fbgemm has no adam on cpu"):
        resolve(local, purpose=Purpose.PLAN)


def test_no_backend_can_train_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    less = Capability("reference", Device.CPU, frozenset({"sgd", "rowwise_adagrad"}), frozenset({WeightsDtype.FP32}))
    monkeypatch.setitem(ops_spec._CAPABILITIES, ("reference", Device.CPU), less)
    with pytest.raises(
        ConfigError, match=r"optim\.sparse: no ops backend can train it: fbgemm .*; reference does not train fp16"
    ):
        _resolved("optim.sparse.weights_dtype=fp16")
