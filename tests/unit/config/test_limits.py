"""Numbers that are too large, not finite, or without effect: found by kind, for every key of the schema."""

# ruff: noqa: E501  One command and its whole text per line.
import types
import typing
from typing import Any

import pytest

from neo.config import cross_checks
from neo.config.check import check_command_line
from neo.config.composition import ConfigSource
from neo.config.purpose import Purpose
from neo.config.schema import schema_types
from neo.config.store import register


@pytest.fixture(autouse=True)
def _host_without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    register()
    monkeypatch.setattr(cross_checks, "num_gpus", lambda: 0)


def _findings(*overrides: str, multirun: bool = False) -> list[str]:
    found = check_command_line(overrides, ConfigSource(), purpose=Purpose.TRAIN, multirun=multirun)
    return [str(finding) for finding in found]


def _keys_of(kind: type) -> list[tuple[str, bool]]:
    """Return every key of this kind, and whether it is a list of it."""

    def parts(hint: Any) -> tuple[Any, ...]:
        return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)

    single = [(key, False) for key, hint in schema_types().items() if kind in parts(hint)]
    return single + [(key, True) for key, hint in schema_types().items() if list[kind] in parts(hint)]  # type: ignore[valid-type]


def test_every_number_with_a_point_has_to_be_finite() -> None:
    keys = _keys_of(float)
    assert len(keys) > 20
    for value in ("inf", "-inf", "nan"):
        found = _findings(*(f"{key}=[{value}]" if is_list else f"{key}={value}" for key, is_list in keys))
        named = {line.partition(":")[0].partition("[")[0] for line in found}
        assert named >= {key for key, _ in keys}, sorted({key for key, _ in keys} - named)


def test_every_whole_number_has_an_upper_limit() -> None:
    keys = [key for key, _ in _keys_of(int)]
    assert len(keys) > 20
    lists = {key for key, is_list in _keys_of(int) if is_list} - {"optim.schedule.milestones"}
    huge = "9" * 400
    found = _findings(*(f"{key}=[{huge}]" if key in lists else f"{key}={huge}" for key in keys))
    named = {line.partition(":")[0].partition("[")[0] for line in found}
    assert named >= set(keys), sorted(set(keys) - named)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (
            "model.num_embeddings=[9223372036854775807]",
            "model.num_embeddings[0]: 9223372036854775807 is above the limit 2^48; write 1 to 2^48",
        ),
        ("model.embedding_dim=2000000", "model.embedding_dim: 2000000 is above the limit 2^20; write 1 to 2^20"),
        ("hardware.num_nodes=99999999999", "hardware.num_nodes: 99999999999 is above the limit 65536; write 1 to 65536"),
        (
            "hardware.num_nodes=10000",
            "hardware.num_nodes: 10000 nodes of 8 accelerators are more than 65536 ranks; plan for fewer",
        ),
        ("hardware.accelerator.hbm.capacity=1e40GB", "hardware.accelerator.hbm.capacity: '1e40GB' is above the limit 1024PiB"),
        (
            "hardware.accelerator.fp32_flops=inf",
            "hardware.accelerator.fp32_flops: inf is not a finite number above 0 FLOP/s; write null where it is not known",
        ),
        ("trainer.devices=10000", "trainer.devices: 10000 is above the limit 1024; write 1 to 1024"),
        ("trainer.num_nodes=99999999", "trainer.num_nodes: 99999999 is above the limit 65536; write 1 to 65536"),
        ("launch.threads_per_worker=5000", "launch.threads_per_worker: 5000 is above the limit 1024; write 1 to 1024"),
        ("hardware.accelerators_per_node=0", "hardware.accelerators_per_node: 0 is below the limit 1; write 1 to 65536"),
        ("optim.sparse.weight_decay=inf", "optim.sparse.weight_decay: inf is not a finite number; write 0 or more"),
        ("++optim.sparse.tables.sparse_1.lr=null", "optim.sparse.tables.sparse_1.lr: null is not a number; write ++optim.sparse.tables.sparse_1.lr=NUMBER, or leave it out to have that of all tables"),
        ("++sharding.tables.sparse_1=null", "sharding.tables.sparse_1: null is not a mapping; write ++sharding.tables.sparse_1.type=row_wise"),
        ("optim.sparse.lr=inf", "optim.sparse.lr: inf is not a finite number; write 0 or more"),
        ("optim.dense.lr=nan", "optim.dense.lr: nan is not a finite number; write 0 or more"),
    ],
)  # fmt: skip
def test_the_text_of_a_number_beyond_its_limit(override: str, expected: str) -> None:
    assert _findings(override) == [expected]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("optim.sparse.beta1=0.5", "beta1: 0.5 has no effect on 'rowwise_adagrad'; leave it at 0.9, or use adam or partial_rowwise_adam"),
        ("optim.sparse.name=adagrad optim.sparse.beta2=0.5", "beta2: 0.5 has no effect on 'adagrad'; leave it at 0.999, or use adam or partial_rowwise_adam"),
        ("optim.sparse.name=sgd optim.sparse.eps=1", "eps: 1.0 has no effect on 'sgd'; leave it at 1e-08, or use adagrad or rowwise_adagrad or adam or partial_rowwise_adam"),
        ("optim.sparse.name=sgd optim.sparse.initial_accumulator=1", "initial_accumulator: 1.0 has no effect on 'sgd'; leave it at 0.0, or use adagrad or rowwise_adagrad"),
        ("optim.sparse.name=adam optim.sparse.initial_accumulator=1", "initial_accumulator: 1.0 has no effect on 'adam'; leave it at 0.0, or use adagrad or rowwise_adagrad"),
        ("optim.dense.name=sgd optim.dense.eps=1", "eps: 1.0 has no effect on 'sgd'; leave it at 1e-07, or use adagrad or adam or adamw"),
        ("optim.dense.name=adagrad optim.dense.beta1=0.5", "beta1: 0.5 has no effect on 'adagrad'; leave it at 0.9, or use adam or adamw"),
        ("optim.schedule.final_factor=0.5", "final_factor: 0.5 has no effect on 'constant'; leave it at 0.0, or use linear or cosine"),
        ("optim.schedule.step_factor=0.5", "step_factor: 0.5 has no effect on 'constant'; leave it at 0.1, or use step"),
        ("optim.schedule.milestones=[3]", "milestones: [3] has no effect on 'constant'; leave it at [], or use step"),
        ("sharding=row_wise sharding.partitioner=greedy", "partitioner: greedy has no effect on 'row_wise'; leave it at auto, or use table_wise or column_wise"),
        ("sharding=row_wise sharding.column_wise_semantics=per_shard", "column_wise_semantics: 'per_shard' has no effect on 'row_wise': no table is split by columns; leave it out"),
        ("sharding=grid sharding.column_wise_semantics=per_shard", "column_wise_semantics: 'per_shard' has no effect: the forced types split no table by columns over 2 ranks on 1 node; leave it out"),
        ("sharding=column_wise model.embedding_dim=1 sharding.column_wise_semantics=per_shard", "column_wise_semantics: 'per_shard' has no effect: the forced types split no table by columns over 2 ranks on 1 node; leave it out"),
        ("comms.exchange=hierarchical", "comms.exchange: 'hierarchical' has no effect with one node: there are no relays between nodes; leave it at auto, or set hardware.accelerators_per_node"),
        ("comms.exchange=hierarchical hardware.accelerators_per_node=1", "comms.exchange: 'hierarchical' has no effect with one rank on each node: there are no relays between nodes; leave it at auto, or set hardware.accelerators_per_node"),
        ("sharding=data_parallel comms.forward=fp16", "comms.forward: 'fp16' has no effect: every table is data_parallel, and those are added up in fp32; leave it out"),
        ("sharding=data_parallel comms.backward=int8", "comms.backward: 'int8' has no effect: every table is data_parallel, and those are added up in fp32; leave it out"),
        ("sharding=data_parallel comms.exchange=hierarchical trainer.devices=4 hardware.accelerators_per_node=2", "comms.exchange: 'hierarchical' has no effect: every table is data_parallel, and those are added up in fp32; leave it out"),
        ("optim.sparse.name=sgd sharding.column_wise_semantics=per_shard", "column_wise_semantics: 'per_shard' has no effect on 'sgd': only row-wise optimizers depend on it; leave it out"),
    ],
)  # fmt: skip
def test_a_setting_without_effect_is_a_mistake(command: str, expected: str) -> None:
    found = _findings(*command.split())
    assert len(found) == 1
    assert found[0].endswith(expected)


@pytest.mark.parametrize(
    "command",
    [
        "optim.sparse.beta1=0.9 optim.sparse.eps=1e-8 optim.dense.name=sgd optim.dense.beta1=0.9",
        "optim.sparse.name=adagrad optim.sparse.initial_accumulator=0.1",
        "optim.schedule.name=step optim.schedule.milestones=[3] optim.schedule.step_factor=0.5",
        "sharding=row_wise ++sharding.tables.sparse_1.type=auto sharding.partitioner=greedy",
        "sharding=row_wise sharding.column_wise_semantics=exact",
        "sharding=column_wise sharding.column_wise_semantics=per_shard",
        "sharding=grid sharding.column_wise_semantics=per_shard hardware.accelerators_per_node=1",
        "sharding=grid ++sharding.tables.sparse_1.type=auto sharding.column_wise_semantics=per_shard",
        "comms.exchange=hierarchical trainer.devices=4 hardware.accelerators_per_node=2",
        "comms.exchange=flat",
        "sharding=data_parallel ++sharding.tables.sparse_1.type=row_wise comms=fp16",
        "sharding=auto comms=fp16",
        # How many ranks `auto` finds decides: told in the plan.
        "sharding=data_parallel trainer.devices=1 comms=fp16",
        "sharding=table_column_wise sharding.column_wise_semantics=per_shard",
        # One node of both ranks: the grid cuts no columns, and a kernel that shares no state will do.
        "sharding=grid ops=fbgemm hardware.accelerators_per_node=2",
        "sharding=grid ops=fbgemm sharding.column_wise_semantics=per_shard hardware.accelerators_per_node=1",
        "sharding=table_row_wise ops=fbgemm hardware.accelerators_per_node=1",
    ],
)
def test_defaults_and_settings_that_are_read_are_fine(command: str) -> None:
    assert _findings(*command.split()) == []


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("seed=range(1,3,0)", "seed: 'seed=range(1,3,0)' cannot be expanded: range() arg 3 must not be zero; use choice(a,b) or range(1,4)"),
        ("seed=range(3,1)", "seed: 'seed=range(3,1)' matches nothing; use choice(a,b) or range(1,4)"),
        ("sharding=glob(no*)", "sharding: 'sharding=glob(no*)' matches nothing; use choice(a,b) or range(1,4)"),
    ],
)  # fmt: skip
def test_a_sweep_without_points(override: str, expected: str) -> None:
    assert _findings(override, multirun=True) == [expected]


def test_a_glob_is_a_sweep_over_the_names_of_its_group() -> None:
    assert _findings("sharding=glob(*wise)", multirun=True) == []
    assert _findings("sharding=glob(*)", multirun=True) == [
        "point 3 (sharding=file): sharding.path: sharding=file needs the plan to read; set sharding.path=plan.json"
    ]
