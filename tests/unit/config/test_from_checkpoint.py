"""What of a checkpoint's configuration may be changed, and what is said of the rest."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from omegaconf import OmegaConf

from neo.config import devices
from neo.config.from_checkpoint import Opened, Use, open_config, read_opened
from neo.config.resolve import write_resolved
from neo.config.store import register
from neo.errors import CheckpointError, ConfigError
from neo.planner.spec import ShardingMode
from neo.strategy.spec import Accelerator


@pytest.fixture(autouse=True)
def _host_with_four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    register()
    monkeypatch.setattr(devices, "num_gpus", lambda: 0)
    monkeypatch.setattr(devices, "num_cores", lambda: 4)


def checkpoint(folder: Path, *, world_size: int = 2, **groups: Any) -> Path:
    """Leave what a training run leaves of its configuration and its plan."""
    data = {"name": "synthetic", "val_samples": 100, "global_batch_size": 32}
    content = {
        "hardware": {"name": "local", "detect": True},
        "trainer": {"devices": world_size, "accelerator": "cpu"},
        "data": data,
        **groups,
    }
    OmegaConf.save(OmegaConf.create(content), folder / "resolved.yaml")
    (folder / "plan.json").write_text(json.dumps({"version": 1, "world_size": world_size, "tables": {}}))
    return folder


def clicks(folder: Path, **others: Any) -> dict[str, Any]:
    """Return a data group whose validation samples exist, and whose training samples do not any more."""
    pq.write_table(pa.table({"click": [0, 1], "item": [3, 4]}), folder / "val.parquet")
    gone = {"path": str(folder / "gone.parquet"), "val_path": str(folder / "val.parquet")}
    return {"name": "parquet", **gone, "label": "click", "categorical": ["item"], **others}


def opened(path: Path, *overrides: str, use: Use = Use.EVAL, world_size: int = 2) -> Opened:
    return open_config(path, overrides, use=use, world_size=world_size)


def findings(path: Path, *overrides: str, use: Use = Use.EVAL) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        opened(path, *overrides, use=use)
    return [str(finding) for finding in caught.value.findings]


def test_without_overrides_the_plan_and_the_world_are_the_checkpoints(tmp_path: Path) -> None:
    found = opened(checkpoint(tmp_path))
    assert (found.num_processes, found.notes) == (2, ())
    assert found.run.sharding.type is ShardingMode.FILE
    assert found.run.sharding.path == str(tmp_path / "plan.json")
    assert found.run.data.val_samples == 100


@pytest.mark.parametrize("override", ["sharding=row_wise", "sharding.type=row_wise"])
def test_another_sharding_is_planned_anew(tmp_path: Path, override: str) -> None:
    path = checkpoint(tmp_path, sharding={"type": "column_wise", "column_wise_semantics": "exact"})
    found = opened(path, override)
    assert found.run.sharding.type is ShardingMode.ROW_WISE


def test_for_another_world_the_tables_are_planned_as_the_run_wished(tmp_path: Path) -> None:
    wished = {"type": "table_wise", "column_wise_semantics": "exact", "tables": {"sparse_0": {"type": "row_wise"}}}
    found = opened(checkpoint(tmp_path, sharding=wished), "trainer.devices=3")
    assert found.num_processes == 3
    assert found.run.sharding.type is ShardingMode.TABLE_WISE
    assert [table.name for table in found.run.sharding.tables] == ["sparse_0"]


def test_a_plan_from_a_file_is_left_behind_for_another_world(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, sharding={"type": "file", "path": str(tmp_path / "long_gone.json")})
    assert opened(path, "trainer.devices=1").run.sharding.type is ShardingMode.AUTO


def test_a_host_without_room_for_the_world_takes_what_it_has_and_says_so(tmp_path: Path) -> None:
    found = opened(checkpoint(tmp_path, world_size=64), world_size=64)
    assert found.num_processes == 2
    assert found.notes == ("64 processes wrote the checkpoint; 2 (cpu) are started here",)


def test_what_was_trained_on_gpus_runs_on_the_cpu_where_there_are_none(tmp_path: Path) -> None:
    trainer = {"devices": 2, "accelerator": "cuda", "num_nodes": 4}
    found = opened(checkpoint(tmp_path, trainer=trainer), world_size=8)
    assert found.run.trainer.accelerator is Accelerator.AUTO
    assert found.run.trainer.num_nodes == 1
    assert found.num_processes == 2


def test_limits_of_the_training_do_not_limit_what_is_read_here(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, data=clicks(tmp_path, limit_samples=7))
    assert opened(path).run.data.limit_samples is None
    assert opened(path, "data.limit_samples=1").run.data.limit_samples == 1


def test_labels_are_not_needed_for_scores(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, data=clicks(tmp_path))
    pq.write_table(pa.table({"item": [3, 4]}), tmp_path / "new.parquet")
    override = f"data.val_path={tmp_path / 'new.parquet'}"
    assert findings(path, override) == [
        f"data.label: there is no column 'click' in '{tmp_path / 'new.parquet'}'; Choices: item"
    ]
    found = opened(path, override, use=Use.PREDICT)
    assert found.run.data.label is None
    write_resolved(tmp_path / "worker.yaml", found.config, {})
    assert read_opened(tmp_path / "worker.yaml", use=Use.PREDICT) == found.run


def test_the_weights_alone_need_no_samples(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, data=clicks(tmp_path))
    (tmp_path / "val.parquet").unlink()
    assert opened(path, use=Use.EXPORT).run.data.label is None
    assert findings(path) == [f"data.val_path: '{tmp_path / 'val.parquet'}' does not exist"]


def test_all_mistakes_are_found_together(tmp_path: Path) -> None:
    overrides = (
        "model.embedding_dim=8",
        "model=dlrm_dcnv2",
        "data.encoding=hash",
        "data.path=x.parquet",
        "optim.sparse.lr=1",
        "trainer.max_steps=3",
        "data.val_sample=5",
        "trainer.devices=0",
        "sharding=rowwise",
        "hydra.run.dir=x",
        "nonsense",
    )
    free = "data.name, data.val_path, data.global_batch_size, data.limit_samples, data.val_samples, data.num_workers"
    decided = "cannot be changed for a checkpoint: "
    other_model = "the checkpoint holds this model's tables and dense part, and no other; leave it out"
    form = "the checkpoint's model knows samples in this form only"
    found = findings(checkpoint(tmp_path), *overrides)
    for line in (
        "nonsense: is not an override; write nonsense=VALUE",
        f"model.embedding_dim: {decided}{other_model}",
        f"model: 'model=dlrm_dcnv2': {other_model}",
        f"data.encoding: {decided}{form}; leave it out; free are {free}",
        f"data.path: {decided}nothing is trained here; write data.val_path=FILE: those samples are read",
        f"optim.sparse.lr: {decided}nothing is trained here; leave it out",
        f"trainer.max_steps: {decided}nothing is trained here; leave it out",
        "trainer.devices: 0 is below the limit 1; write 1 to 1024",
        "hydra.run.dir: is Hydra's, and Hydra does not run here; leave it out",
    ):
        assert line in found
    starts = [line.partition(";")[0] for line in found]
    assert "data.val_sample: no such key (given '5')" in starts
    assert "sharding: 'rowwise' is not a choice of sharding" in starts
    assert len(found) == len(overrides)


def test_a_run_without_validation_data_says_what_to_write(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, data=clicks(tmp_path) | {"val_path": None})
    assert findings(path) == [
        "data.val_path: is not set: the run had no validation data; write data.val_path=FILE_OR_FOLDER"
    ]


def test_a_checkpoint_that_keeps_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"resolved.yaml' cannot be read: No such file or directory; neo train"):
        opened(tmp_path)
    (tmp_path / "resolved.yaml").write_text("a: [")
    with pytest.raises(CheckpointError, match=r"resolved.yaml' is damaged"):
        opened(tmp_path)
