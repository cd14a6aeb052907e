"""Mistakes in configuration files, and every file of neo itself."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra

import neo.conf
from neo.config import cross_checks
from neo.config.check import check_command_line
from neo.config.composition import ConfigSource
from neo.config.purpose import Purpose
from neo.config.resolve import resolve
from neo.config.store import register
from neo.strategy import logger_options

CONF = Path(neo.conf.__file__ or "").parent
NUM_FILES = 49


@pytest.fixture(autouse=True)
def _host_without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    register()
    monkeypatch.setattr(cross_checks, "num_gpus", lambda: 0)
    monkeypatch.setattr(logger_options, "find_spec", lambda package: package)  # as if every logger were installed


def _files() -> list[str]:
    found = []
    for folder, _, names in os.walk(CONF, followlinks=True):
        found += [os.path.relpath(os.path.join(folder, name), CONF) for name in names if name.endswith(".yaml")]
    return sorted(found)


def _command(file: str, tmp_path: Path) -> list[str]:
    """Return the overrides that choose this file, and what its choice cannot do without."""
    group, _, name = file.removesuffix(".yaml").rpartition("/")
    if not group:
        return []
    if group == "recipes":
        return [f"+recipes={name}"]
    (tmp_path / "data.csv").write_text("label,color\n1,red\n")
    (tmp_path / "tables.csv").write_text("name,rows,dim,pooling\nuser,10,8,sum\n")
    (tmp_path / "plan.json").write_text("{}")
    file_columns = [f"data.path={tmp_path}/data.csv", "data.label=label", "data.categorical=[color]"]
    needs = {
        "data=criteo": [f"data.path={tmp_path}/data.csv"],
        "data=csv": file_columns,
        "data=parquet": file_columns,
        "model=table_list": [f"model.path={tmp_path}/tables.csv"],
        "sharding=file": [f"sharding.path={tmp_path}/plan.json"],
    }
    return [f"{group}={name}", *needs.get(f"{group}={name}", [])]


def test_number_of_files() -> None:
    assert len(_files()) == NUM_FILES, "\n".join(_files())


@pytest.mark.parametrize("file", _files())
def test_every_file_is_composed_and_resolved(file: str, tmp_path: Path) -> None:
    overrides = _command(file, tmp_path)
    assert check_command_line(overrides, ConfigSource(), purpose=Purpose.PLAN, multirun=False) == []
    GlobalHydra.instance().clear()
    with initialize_config_module("neo.conf", version_base="1.3"):
        config = compose("config", overrides=overrides)
    run = resolve(config, purpose=Purpose.PLAN)
    assert run.hardware.world_size >= 1


def _findings(folder: Path, *overrides: str) -> list[str]:
    source = ConfigSource(config_dir=str(folder))
    return [str(f) for f in check_command_line(overrides, source, purpose=Purpose.TRAIN, multirun=False)]


def _write(folder: Path, file: str, lines: Sequence[str]) -> None:
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text("\n".join(lines) + "\n")


def test_a_file_of_the_user_is_a_choice(tmp_path: Path) -> None:
    _write(tmp_path, "optim/mine.yaml", ["sparse:", "  lr: 0.5"])
    assert _findings(tmp_path, "optim=mine") == []
    assert _findings(tmp_path, "optim=minee")[0] == (
        "optim: 'minee' is not a choice of optim; did you mean 'mine'? Choices: default, mine"
    )


def test_yaml_that_cannot_be_parsed(tmp_path: Path) -> None:
    _write(tmp_path, "optim/mine.yaml", ["sparse:", "  lr: 0.5", " eps: [1"])
    assert _findings(tmp_path, "optim=mine", "seed=-1") == [
        "optim/mine.yaml: cannot be read: line 3, column 2: expected <block end>, but found '<block mapping start>'",
        "seed: -1 is outside [0, 2^63)",
    ]


def test_yaml_that_is_no_mapping(tmp_path: Path) -> None:
    _write(tmp_path, "optim/mine.yaml", ["- sparse"])
    assert _findings(tmp_path, "optim=mine") == ["optim/mine.yaml: is not a mapping of keys; write KEY: VALUE lines"]


def test_every_mistake_of_a_file_and_of_the_command(tmp_path: Path) -> None:
    _write(tmp_path, "optim/mine.yaml", ["sparse:", "  lrr: 0.5", "  eps: small", "  _target_: os.system"])
    _write(tmp_path, "recipes/mine.yaml", ["# @package _global_", "trainer:", "  max_step: 3", "  devices: 0"])
    found = _findings(tmp_path, "optim=mine", "+recipes=mine", "seed=x")
    assert found[0] == "seed: 'x' is not a whole number"
    assert found[1].startswith("optim/mine.yaml: optim.sparse.lrr: no such key (given '0.5'); did you mean")
    assert found[2] == "optim/mine.yaml: optim.sparse.eps: 'small' is not a number"
    assert found[3].startswith("optim/mine.yaml: optim.sparse._target_: a configuration cannot name Python objects")
    assert found[4].startswith("recipes/mine.yaml: trainer.max_step: no such key (given '3'); did you mean")
    assert found[5:] == ["trainer.devices: 0 is below the limit 1; write 1 to 1024"]


def test_mistakes_of_one_group_file(tmp_path: Path) -> None:
    _write(tmp_path, "optim/mine.yaml", ["sparse:", "  lrr: 0.5", "  eps: small"])
    assert _findings(tmp_path, "optim=mine") == [
        "optim/mine.yaml: optim.sparse.lrr: no such key (given '0.5'); did you mean 'optim.sparse.lr'? "
        "Keys of optim.sparse: beta1, beta2, eps, initial_accumulator, lr, name, stochastic_rounding, tables, "
        "weight_decay, weight_decay_mode, weights_dtype",
        "optim/mine.yaml: optim.sparse.eps: 'small' is not a number",
    ]


def test_a_recipe_overrides_groups(tmp_path: Path) -> None:
    lines = ["# @package _global_", "defaults:", "  - override /sharding: row_wise", "trainer:", "  max_steps: 7"]
    _write(tmp_path, "recipes/mine.yaml", lines)
    assert _findings(tmp_path, "+recipes=mine") == []
    lines[2] = "  - override /sharding: row_wiese"
    _write(tmp_path, "recipes/mine.yaml", lines)
    assert _findings(tmp_path, "+recipes=mine") == [
        "recipes/mine.yaml: defaults: 'row_wiese' is not a choice of sharding; did you mean 'row_wise'? "
        "Choices: auto, column_wise, data_parallel, file, grid, row_wise, table_column_wise, table_row_wise, table_wise"
    ]


def test_every_mistake_of_a_recipe(tmp_path: Path) -> None:
    overrides = ["  - override /hardwaer: zionex", "  - override ops: auto", "  - /model: dlrm"]
    keys = ["trainer:", "  max_step: 3", "  num_nodes: many"]
    _write(tmp_path, "recipes/mine.yaml", ["defaults:", "  - override /data: cvs", *overrides, *keys])
    found = _findings(tmp_path, "+recipes=mine", "seed=-1")
    assert found[:2] == [
        "recipes/mine.yaml: has no package line, so its keys would go below 'recipes'; "
        "write '# @package _global_' as its first line",
        "recipes/mine.yaml: defaults: 'cvs' is not a choice of data; did you mean 'csv'? "
        "Choices: criteo, csv, parquet, synthetic",
    ]
    assert found[2].startswith("recipes/mine.yaml: defaults: '/hardwaer' is not a group; did you mean 'hardware'?")
    assert found[3:5] == [
        "recipes/mine.yaml: defaults: 'ops' is looked for below 'recipes'; write override /ops: auto",
        "recipes/mine.yaml: defaults: 'model: dlrm' is chosen already; write override /model: NAME",
    ]
    assert found[5].startswith("recipes/mine.yaml: trainer.max_step: no such key (given '3'); did you mean")
    assert found[6:] == [
        "recipes/mine.yaml: trainer.num_nodes: 'many' is not a whole number",
        "seed: -1 is outside [0, 2^63)",
    ]


def test_a_defaults_list_that_only_hydra_understands_does_not_hide_the_rest(tmp_path: Path) -> None:
    _write(tmp_path, "recipes/mine.yaml", ["# @package _global_", "defaults:", "  - nothing_here"])
    found = _findings(tmp_path, "+recipes=mine", "seed=-1")
    assert found == [
        "defaults list: In 'recipes/mine': Could not load 'recipes/nothing_here'.",
        "seed: -1 is outside [0, 2^63)",
    ]


@pytest.mark.parametrize(
    ("source", "override", "expected"),
    [
        (
            ConfigSource(config_name="foo"),
            "seed=0",
            "--config-name: 'foo' is not a configuration file; leave it out, or use config",
        ),
        (
            ConfigSource(config_path="/nowhere"),
            "seed=0",
            "--config-path: '/nowhere' has no config.yaml; leave it out; "
            "a folder of your own files is added with --config-dir",
        ),
        (
            ConfigSource(),
            "hydra/launcher=nosuch",
            "hydra/launcher: 'nosuch' is not a choice of hydra/launcher; Choices: basic",
        ),
    ],
)
def test_what_hydra_cannot_find_is_one_line(source: ConfigSource, override: str, expected: str) -> None:
    found = check_command_line([override], source, purpose=Purpose.TRAIN, multirun=False)
    assert [str(finding) for finding in found] == [expected]


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    found = _findings(tmp_path / "nowhere", "seed=-1")
    assert found == [f"--config-dir: '{tmp_path}/nowhere' is not a folder", "seed: -1 is outside [0, 2^63)"]
