"""What a run starts from: found, compared with the run, and nothing of an earlier run is lost."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from neo.checkpoint.compare import table_entries
from neo.checkpoint.folder import file_entry, step_name
from neo.checkpoint.manifest import Facts, Manifest, write_manifest
from neo.cli.run_folder import clear
from neo.cli.start import Start, clear_the_way, find_start, require_tables, take_schema
from neo.config.resolve import resolve_content, write_resolved
from neo.config.run_config import RunConfig
from neo.data.vocabulary import learn_schema, load_schema
from neo.errors import ConfigError
from neo.models.spec import EMBEDDINGS_PATH, tables_of
from neo.tables.spec import TableSpec

BASE: dict[str, Any] = {
    "hardware": {"name": "local", "detect": True},
    "data": {"num_samples": 100, "val_samples": 0},
    "model": {"num_embeddings": [5, 6]},
    "optim": {"sparse": {"name": "adagrad"}},
}


def make_start(run: RunConfig, run_dir: Path) -> Start:
    return clear_the_way(find_start(run, run_dir), run, run_dir)


def config_of(**changes: Mapping[str, Any]) -> RunConfig:
    return resolve_content(content_of(**changes), purpose=None)


def content_of(**changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = {group: {**BASE.get(group, {}), **changes.get(group, {})} for group in {*BASE, *changes} - {"seed"}}
    return merged | ({"seed": changes["seed"]} if "seed" in changes else {})


def tables_for(config: RunConfig, folder: Path) -> dict[str, TableSpec]:
    schema = load_schema(folder)
    return {f"{EMBEDDINGS_PATH}.{table.name}": table for table in tables_of(config.model, schema.features)}


def save(run_dir: Path, step: int) -> Path:
    """Make a complete checkpoint of a run of ``BASE``, without weights."""
    path = run_dir / "checkpoints" / step_name(step)
    path.mkdir(parents=True)
    write_resolved(path / "resolved.yaml", OmegaConf.create(content_of()), {})
    config = config_of()
    folder = path / "data_schema"
    learn_schema(config.data, num_embeddings=[5, 6], pooling_factors=None, seed=config.seed, folder=folder)
    tables = tables_for(config, folder)
    names = ("resolved.yaml", "data_schema/schema.json")
    files = {name: file_entry(path / name) for name in names}
    entries = table_entries(tables, dict.fromkeys(tables, config.optim.sparse))
    write_manifest(path, Manifest(Facts(step), 1, entries, files, {}))
    return path


def resuming(path: object, **changes: Mapping[str, Any]) -> RunConfig:
    return config_of(**changes, checkpoint={"resume": str(path)})


def test_auto_takes_the_newest_complete_one_or_starts_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = resuming("auto")
    assert make_start(run, tmp_path) == Start()
    text = f"checkpoint.resume=auto: no complete checkpoint in {tmp_path}/checkpoints; a fresh start\n"
    assert capsys.readouterr().out == text
    first, second = save(tmp_path, 3), save(tmp_path, 12)
    assert make_start(run, tmp_path) == Start(second, resumes=True)
    assert capsys.readouterr().out == f"goes on from {second} (step 12)\n"
    schema = second / "data_schema" / "schema.json"
    schema.write_text(schema.read_text().replace("sparse_0", "sparse_9"))  # as many bytes
    assert find_start(run, tmp_path).checkpoint == first
    said = f"checkpoint.resume=auto passes over a checkpoint: '{second}' is damaged: the content of data_schema/schema."
    assert capsys.readouterr().out.startswith(said)
    assert second.is_dir()  # nothing is moved before the run begins
    assert make_start(run, tmp_path).checkpoint == first
    assert f"checkpoints after step 3 were moved to {tmp_path}/checkpoints_before_1\n" in capsys.readouterr().out
    assert (tmp_path / "checkpoints_before_1" / second.name).is_dir()


def test_damaged_checkpoints_are_kept_by_a_fresh_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (save(tmp_path, 3) / "resolved.yaml").write_text("cut off")
    assert make_start(resuming("auto"), tmp_path) == Start()
    said = capsys.readouterr().out
    assert "is damaged: resolved.yaml has 7 bytes, not" in said
    assert f"checkpoints of an earlier run were moved to {tmp_path}/checkpoints_before_1\n" in said
    assert (tmp_path / "checkpoints_before_1" / "step_000003").is_dir()


def test_what_the_workers_read(tmp_path: Path) -> None:
    path = save(tmp_path / "old", 3)
    start = make_start(resuming(path.parent), tmp_path / "new")
    assert start.settled == {"checkpoint.resume": str(path), "checkpoint.weights_from": None}
    start = make_start(config_of(checkpoint={"weights_from": str(path)}), tmp_path / "new")
    assert start.settled == {"checkpoint.resume": None, "checkpoint.weights_from": str(path)}


def test_a_fresh_run_moves_earlier_checkpoints_aside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path, 3)
    assert make_start(config_of(), tmp_path) == Start()
    aside = tmp_path / "checkpoints_before_1"
    assert capsys.readouterr().out == f"checkpoints of an earlier run were moved to {aside}\n"
    assert [path.name for path in aside.iterdir()] == ["step_000003"]
    path = save(tmp_path, 4)
    start = make_start(config_of(checkpoint={"weights_from": str(path)}), tmp_path)
    assert start.checkpoint == tmp_path / "checkpoints_before_2" / "step_000004"


def test_going_back_moves_the_later_checkpoints_aside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, _, _ = save(tmp_path, 3), save(tmp_path, 9), save(tmp_path, 1_000_000)
    assert make_start(resuming(first), tmp_path) == Start(first, resumes=True)
    assert f"checkpoints after step 3 were moved to {tmp_path}/checkpoints_before_1" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_000003"]


def test_going_back_counts_steps_of_any_length(tmp_path: Path) -> None:
    first, _ = save(tmp_path, 999_990), save(tmp_path, 1_000_000)
    make_start(resuming(first), tmp_path)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_999990"]


def test_a_run_may_read_the_plan_that_lies_in_its_folder(tmp_path: Path) -> None:
    for name in ("plan.json", "summary.json"):
        (tmp_path / name).write_text("{}")
    clear(tmp_path, keep=str(tmp_path / "plan.json"))
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]
    clear(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_half_written_checkpoints_go(tmp_path: Path) -> None:
    draft = tmp_path / "checkpoints" / ".step_000004.saving"
    draft.mkdir(parents=True)
    make_start(resuming("auto"), tmp_path)
    assert not draft.exists()


def test_a_run_that_differs_is_refused_and_each_difference_named(tmp_path: Path) -> None:
    path = save(tmp_path / "old", 3)
    changed = resuming(
        path,
        seed=1,  # type: ignore[arg-type]
        data={"num_samples": 200},
        model={"num_embeddings": [5, 7]},
        optim={"sparse": {"name": "sgd"}, "dense": {"lr": 0.5}},
    )
    with pytest.raises(ConfigError) as caught:
        make_start(changed, tmp_path / "new")
    named = {finding.key: finding.problem for finding in caught.value.findings}
    where = f"in '{path}'"
    assert named["seed"] == f"1 here, but 0 {where}"
    assert named["data.num_samples"] == f"200 here, but 100 {where}"
    assert named["model.num_embeddings"] == f"[5,7] here, but [5,6] {where}"
    assert named["optim.sparse.name"] == f"'sgd' here, but 'adagrad' {where}"
    assert named["optim.dense.lr"] == f"0.5 here, but 0.001 {where}"
    fix = f"take the same, or the weights alone with checkpoint.weights_from={path} in place of checkpoint.resume"
    assert {finding.fix for finding in caught.value.findings} == {fix}


def test_what_may_change_on_the_way(tmp_path: Path) -> None:
    path = save(tmp_path / "old", 3)
    changes: dict[str, Any] = {
        "data": {"global_batch_size": 7, "num_workers": 0},
        "trainer": {"devices": 1, "max_steps": 9},
        "sharding": {"type": "row_wise"},
    }
    assert make_start(resuming(path, **changes), tmp_path / "new").checkpoint == path


def test_weights_alone_need_the_same_columns_and_tables_only(tmp_path: Path) -> None:
    path = save(tmp_path / "old", 3)
    other: dict[str, Any] = {"optim": {"sparse": {"name": "sgd"}}, "checkpoint": {"weights_from": str(path)}}
    run = config_of(**other, data={"num_samples": 7})
    start = make_start(run, tmp_path / "new")
    assert take_schema(start, tmp_path / "schema")
    schema = load_schema(tmp_path / "schema")
    assert schema.num_samples is None  # other data may have another number
    assert load_schema(path / "data_schema").num_samples == 100
    require_tables(start, run, tables_for(run, tmp_path / "schema"))
    with pytest.raises(ConfigError, match=re.escape(f"data.num_dense: 4 here, but 13 in '{path}'")):
        make_start(config_of(**other, data={"num_dense": 4}), tmp_path / "new")


def test_other_tables_are_refused_before_anything_starts(tmp_path: Path) -> None:
    path = save(tmp_path / "old", 3)
    start, run = Start(path, resumes=True), config_of()
    tables = tables_for(run, path / "data_schema")
    require_tables(start, run, tables)
    require_tables(Start(), run, {})
    key, *others = tables
    bigger = {key: replace(tables[key], num_embeddings=99), **{other: tables[other] for other in others}}
    with pytest.raises(ConfigError) as caught:
        require_tables(start, run, bigger)
    (finding,) = caught.value.findings
    text = f"'{path}': table '{key}': num_embeddings is 5 in the checkpoint and 99 in the model"
    assert (finding.key, finding.problem, finding.fix) == ("checkpoint.resume", text, "")
    with pytest.raises(ConfigError) as caught:
        require_tables(start, config_of(optim={"sparse": {"name": "sgd"}}), tables)
    assert "optimizer is adagrad in the checkpoint and sgd in the model" in caught.value.findings[0].problem
    assert f"checkpoint.weights_from={path}" in caught.value.findings[0].fix


def test_a_checkpoint_of_an_own_module_gives_its_weights_only(tmp_path: Path) -> None:
    path = save(tmp_path / "old", 3)
    manifest = json.loads((path / "checkpoint.json").read_text())
    manifest["files"] = {}
    (path / "checkpoint.json").write_text(json.dumps(manifest))
    (path / "resolved.yaml").unlink()
    with pytest.raises(ConfigError, match=r"holds no resolved\.yaml: it was not written by a run of this command"):
        make_start(resuming(path), tmp_path / "new")
    assert make_start(config_of(checkpoint={"weights_from": str(path)}), tmp_path / "new").checkpoint == path
