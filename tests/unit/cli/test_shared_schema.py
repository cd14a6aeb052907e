"""Which runs share a learning pass, and what becomes of what they share."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from neo.cli.shared_schema import learn_shared, point_to, schema_key, schema_of
from neo.config.resolve import resolve_content
from neo.config.run_config import RunConfig
from neo.data.schema import DataSchema
from neo.errors import DataError


@pytest.fixture
def run(tmp_path: Path) -> RunConfig:
    (tmp_path / "data.csv").write_text("label,color\n0,red\n1,blue\n")
    data = {"name": "csv", "path": f"{tmp_path}/data.csv", "label": "label", "categorical": ["color"]}
    hardware = {"accelerators_per_node": 1, "accelerator": {"hbm": {"capacity": "1GiB", "bandwidth": "1TB/s"}}}
    return resolve_content({"data": data, "hardware": hardware}, purpose=None)


def _vocabulary(schema: DataSchema) -> bytes:
    (column,) = schema.sparse
    return (schema.folder / str(column.vocabulary)).read_bytes()


def test_only_what_the_pass_reads_makes_another_pass(run: RunConfig, tmp_path: Path) -> None:
    same = [
        replace(run, seed=5),
        replace(run, data=replace(run.data, global_batch_size=64)),
        replace(run, data=replace(run.data, shuffle=False)),
    ]
    others = [
        replace(run, data=replace(run.data, limit_samples=1)),
        replace(run, data=replace(run.data, hash_buckets=7)),
        replace(run, model=replace(run.model, num_embeddings=(9,))),
    ]
    key = schema_key(run)
    assert {schema_key(other) for other in same} == {key}
    assert len({schema_key(other) for other in [run, *others]}) == 4
    (tmp_path / "data.csv").write_text("label,color\n0,red\n1,green\n0,red\n")
    assert schema_key(run) != key


def test_a_run_takes_what_was_learned_for_it(run: RunConfig, tmp_path: Path) -> None:
    schema, learned = learn_shared(run, tmp_path / "learned")
    stamped = learned / "schema.json"
    stamped.write_text(json.dumps({**json.loads(stamped.read_text()), "num_samples": 77}))
    assert learn_shared(run, tmp_path / "learned")[0].num_samples == 77
    point_to(tmp_path, learned)
    taken = schema_of(run, tmp_path / "run" / "data_schema", tmp_path)
    assert taken.num_samples == 77
    assert taken.folder == tmp_path / "run" / "data_schema"
    assert _vocabulary(taken) == _vocabulary(schema)


def test_a_run_that_needs_something_else_learns_for_itself(run: RunConfig, tmp_path: Path) -> None:
    _, learned = learn_shared(run, tmp_path / "learned")
    point_to(tmp_path, learned)
    other = replace(run, data=replace(run.data, limit_samples=1))
    assert schema_of(other, tmp_path / "a", tmp_path).num_samples == 1
    (learned / "schema.json").write_text("{}")  # Damaged: not worth an error.
    assert schema_of(run, tmp_path / "b", tmp_path).num_samples == 2
    (learned / "schema.json").unlink()
    assert schema_of(run, tmp_path / "c", tmp_path).num_samples == 2


def test_a_pass_that_fails_leaves_nothing(run: RunConfig, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("label,color\n7,red\n")
    with pytest.raises(DataError, match="column 'label'"):
        learn_shared(run, tmp_path / "learned")
    assert list(tmp_path.glob("learned/*")) == []
