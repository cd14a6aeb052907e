"""R33: every mistake in a command is found before anything starts, with key, value, allowed values and nearest name."""

from pathlib import Path

import pytest

from neo.config import cross_checks
from neo.config.check import check_command_line
from neo.config.composition import ConfigSource
from neo.config.purpose import Purpose
from neo.config.store import register
from neo.errors import ConfigError

_TRAINER_KEYS = (
    "accelerator, devices, limit_val_batches, log_every_n_steps, matmul_precision, max_epochs, max_steps, "
    "num_nodes, pipeline, precision, progress_bar, throughput_warmup_steps, val_check_interval"
)
_SHARDINGS = "auto, column_wise, data_parallel, file, grid, row_wise, table_column_wise, table_row_wise, table_wise"
_TYPES = _SHARDINGS.replace("file, ", "")
_ROOT_KEYS = (
    "callbacks, checkpoint, comms, data, hardware, launch, logger, model, ops, optim, seed, sharding, strict, "
    "sweep, trainer"
)
_NO_OBJECTS = (
    "a configuration cannot name Python objects; choose by name; "
    "an installed package adds names through the entry point neo.plugins"
)

# One command per entry, its overrides separated by blanks; then every finding in full.
MISTAKES: list[tuple[str, list[str]]] = [
    (
        "sharding=tabel_wise",
        [
            (f"sharding: 'tabel_wise' is not a choice of sharding; did you mean 'table_wise'? Choices: {_SHARDINGS}"),
        ],
    ),
    (
        "hardware=zionx",
        [
            (
                "hardware: 'zionx' is not a choice of hardware; did you mean 'zionex'? Choices: dgx_a100, "
                "dgx_h100, local, planner_bench, zion, zionex"
            ),
        ],
    ),
    (
        "model=dlmr",
        [
            "model: 'dlmr' is not a choice of model; did you mean 'dlrm'? "
            "Choices: deepfm, dlrm, dlrm_dcnv2, table_list",
        ],
    ),
    (
        "comms=null",
        [
            "comms: null is not a choice of comms; Choices: bf16, fp16, fp32, int8",
        ],
    ),
    (
        "trainer.precison=bf16-mixed",
        [
            (
                "trainer.precison: no such key (given 'bf16-mixed'); did you mean 'trainer.precision'? Keys of "
                f"trainer: {_TRAINER_KEYS}"
            ),
        ],
    ),
    (
        "optim.sparse.weight_dtype=fp16",
        [
            (
                "optim.sparse.weight_dtype: no such key (given 'fp16'); did you mean "
                "'optim.sparse.weights_dtype'? Keys of optim.sparse: beta1, beta2, eps, initial_accumulator, "
                "lr, name, stochastic_rounding, tables, weight_decay, weight_decay_mode, weights_dtype"
            ),
        ],
    ),
    (
        "lr=0.1",
        [
            (
                "lr: no such key (given '0.1'); did you mean 'optim.sparse.lr' or 'optim.dense.lr'? Groups and "
                f"keys: {_ROOT_KEYS}"
            ),
        ],
    ),
    (
        "trainr.devices=2",
        [
            (f"trainr.devices: no such key (given '2'); did you mean 'trainer.devices'? Groups and keys: {_ROOT_KEYS}"),
        ],
    ),
    (
        "+trainer.max_steps=3",
        [
            "trainer.max_steps: '+' adds keys, and this one exists; write trainer.max_steps=3",
        ],
    ),
    (
        "+optim.sparse.momentum=0.9",
        [
            (
                "optim.sparse.momentum: '+' would add a key that nothing reads (given '0.9'); did you mean "
                "'optim.dense.momentum'? Keys of optim.sparse: beta1, beta2, eps, initial_accumulator, lr, "
                "name, stochastic_rounding, tables, weight_decay, weight_decay_mode, weights_dtype"
            ),
        ],
    ),
    (
        "++seed=3",
        [
            "seed: '++' adds keys, and this one exists; write seed=3",
        ],
    ),
    (
        "sharding.tables.sparse_1.type=row_wise",
        [
            (
                "sharding.tables.sparse_1.type: 'sharding.tables.sparse_1.type=row_wise' has to be added to a mapping; "
                "write ++sharding.tables.sparse_1.type=row_wise"
            ),
        ],
    ),
    (
        "+sharding.tables.sparse_1.type=row_wise",
        [
            (
                "sharding.tables.sparse_1.type: '+sharding.tables.sparse_1.type=row_wise' has to be added to a "
                "mapping; write ++sharding.tables.sparse_1.type=row_wise"
            ),
        ],
    ),
    (
        "++sharding.tables.sparse_1.type=rowwise",
        [
            (
                "sharding.tables.sparse_1.type: 'rowwise' is not a sharding type; did you mean 'row_wise'? "
                f"Choices: {_TYPES}"
            ),
        ],
    ),
    (
        "++sharding.tables.sparse_1.kind=row_wise",
        [
            "sharding.tables.sparse_1.kind: 'kind' is not a key of a table's sharding; Choices: type",
            "sharding.tables.sparse_1.type: is missing; write ++sharding.tables.sparse_1.type=row_wise",
        ],
    ),
    (
        "recipes=quickstart",
        [
            "recipes: 'recipes=quickstart' has to add the recipe; write +recipes=quickstart",
        ],
    ),
    (
        "~model",
        [
            "model: '~model' removes a key; every key is needed; give it a value: model=VALUE",
        ],
    ),
    (
        "~optim.sparse.lr",
        [
            (
                "optim.sparse.lr: '~optim.sparse.lr' removes a key; every key is needed; give it a value: "
                "optim.sparse.lr=VALUE"
            ),
        ],
    ),
    (
        "model._target_=os.system",
        [
            f"model._target_: {_NO_OBJECTS}",
        ],
    ),
    (
        "optim.sparse={_target_:os.system}",
        [
            f"optim.sparse._target_: {_NO_OBJECTS}",
        ],
    ),
    (
        "++sharding.tables.sparse_1={_target_:os.system}",
        [
            f"sharding.tables.sparse_1._target_: {_NO_OBJECTS}",
        ],
    ),
    (
        "optim.sparse.lr=fast",
        [
            "optim.sparse.lr: 'fast' is not a number",
        ],
    ),
    (
        "optim.sparse.lr=-0.1",
        [
            "optim.sparse.lr: -0.1 is below the limit 0; write 0 or more",
        ],
    ),
    (
        "optim.sparse.name=adamm",
        [
            (
                "optim.sparse.name: 'adamm' is not a sparse optimizer; did you mean 'adam'? Choices: adagrad, "
                "adam, partial_rowwise_adam, rowwise_adagrad, sgd"
            ),
        ],
    ),
    (
        "optim.sparse.weights_dtype=fp8",
        [
            ("optim.sparse.weights_dtype: 'fp8' is not a weights type; did you mean 'fp32'? Choices: bf16, fp16, fp32"),
        ],
    ),
    (
        "optim.dense.momentum=0.9",
        [
            "optim.dense.momentum: 0.9 has no effect on 'adam'; leave it at 0.0, or use sgd",
        ],
    ),
    (
        "optim.schedule.name=cosine",
        [
            "optim.schedule.decay_steps: 'cosine' needs the number of steps to decay over, not 0",
        ],
    ),
    (
        "trainer.devices=0",
        [
            "trainer.devices: 0 is below the limit 1; write 1 to 1024",
        ],
    ),
    (
        "trainer.devices=two",
        [
            "trainer.devices: 'two' is neither 'auto' nor a number of processes",
        ],
    ),
    (
        "trainer.devices=1.5",
        [
            "trainer.devices: '1.5' is not 'auto' or a whole number",
        ],
    ),
    (
        "trainer.max_steps=ten",
        [
            "trainer.max_steps: 'ten' is not a whole number, or null",
        ],
    ),
    (
        "trainer.max_epochs=null",
        [
            "trainer.max_epochs: null, and max_steps too: training would never end; set one",
        ],
    ),
    (
        "trainer.precision=16-mixed",
        [
            (
                "trainer.precision: '16-mixed' is refused: its loss scaler would multiply the gradients that "
                "the fused sparse optimizers consume; use bf16-mixed or 32-true"
            ),
        ],
    ),
    (
        "trainer.precision=bf16",
        [
            ("trainer.precision: 'bf16' is not a precision; did you mean 'bf16-mixed'? Choices: 32-true, bf16-mixed"),
        ],
    ),
    (
        "trainer.matmul_precision=higest",
        [
            (
                "trainer.matmul_precision: 'higest' is not a matmul precision; did you mean 'highest'? Choices: "
                "high, highest, medium"
            ),
        ],
    ),
    (
        "trainer.accelerator=gpu",
        [
            ("trainer.accelerator: 'gpu' is not a kind of accelerator; did you mean 'cpu'? Choices: auto, cpu, cuda"),
        ],
    ),
    (
        "trainer.accelerator=cuda",
        [
            (
                "trainer.accelerator: 'cuda' needs 1 CUDA device, and this host shows 0; use "
                "trainer.accelerator=cpu, or fewer devices"
            ),
        ],
    ),
    (
        "trainer.pipeline=prefetch",
        [
            "trainer.pipeline: 'prefetch' is not a pipeline; Choices: none",
        ],
    ),
    (
        "trainer.accumulate_grad_batches=4",
        [
            (
                "trainer.accumulate_grad_batches: accumulation is refused: the sparse optimizers update at "
                "every batch, so the result would differ from that of the larger batch; raise "
                "data.global_batch_size"
            ),
        ],
    ),
    (
        "trainer.gradient_clip_val=1.0",
        [
            (
                "trainer.gradient_clip_val: clipping is refused: the fused sparse update is done before a "
                "gradient norm is known; lower optim.sparse.lr and optim.dense.lr"
            ),
        ],
    ),
    (
        "trainer.progress_bar=maybe",
        [
            "trainer.progress_bar: 'maybe' is not true or false",
        ],
    ),
    (
        "model.bottom_mlp=64",
        [
            "model.bottom_mlp: '64' is not a list of whole numbers like [1,2], or null",
        ],
    ),
    (
        "model.bottom_mlp=[64,wide]",
        [
            "model.bottom_mlp: '[64,wide]' is not a list of whole numbers like [1,2], or null",
        ],
    ),
    (
        "model.num_cross_layers=3",
        [
            "model.num_cross_layers: 3 has no effect on 'dlrm'; leave it out, or use model=dlrm_dcnv2",
        ],
    ),
    (
        "model.pooling=max",
        [
            "model.pooling: 'max' is not a pooling; did you mean 'mean'? Choices: mean, sum",
        ],
    ),
    (
        "model=table_list model.path=missing.csv",
        [
            "model.path: 'missing.csv' is not a file; write the path of a list of tables",
            "model.name: 'table_list' is planned, not trained; use plan.py, or model=dlrm",
        ],
    ),
    (
        "model={name:dlrm}",
        [
            "model: '{name:dlrm}' is not a choice of model; set its keys one by one, like model.KEY=VALUE",
        ],
    ),
    (
        "model@other=dlrm",
        [
            "model: 'model@other=dlrm' moves a group to another place; write model=NAME",
        ],
    ),
    (
        "hardware.accelerator.hbm.capacity=40GXB",
        [
            "hardware.accelerator.hbm.capacity: cannot read '40GXB' as bytes; write it like 40GiB",
        ],
    ),
    (
        "hardware.scale_out.bandwidth=0",
        [
            "hardware.scale_out.bandwidth: '0' is impossible for a link; write a rate like 25GB/s or 200Gbps",
        ],
    ),
    (
        "hardware.num_nodes=1.5",
        [
            "hardware.num_nodes: '1.5' is not a whole number",
        ],
    ),
    (
        "hardware.accelerator=A100",
        [
            (
                "hardware.accelerator: 'A100' is not a mapping; 'hardware.accelerator' is a group: set its "
                "keys, like hardware.accelerator.KEY=VALUE"
            ),
        ],
    ),
    (
        "ops=fbgem",
        [
            "ops: 'fbgem' is not a choice of ops; did you mean 'fbgemm'? Choices: auto, fbgemm, reference",
        ],
    ),
    (
        "ops=fbgemm optim.sparse.name=adam",
        [
            (
                "ops.backend: fbgemm has no adam on cpu (it has adagrad, rowwise_adagrad, sgd); use ops=auto or "
                "ops=reference"
            ),
        ],
    ),
    (
        "comms.forward=fp8",
        [
            "comms.forward: 'fp8' is not a codec; did you mean 'fp32'? Choices: bf16, fp16, fp32, int8",
        ],
    ),
    (
        "sharding=file",
        [
            "sharding.path: sharding=file needs the plan to read; set sharding.path=plan.json",
        ],
    ),
    (
        "sharding=file sharding.path=missing.json",
        [
            "sharding.path: 'missing.json' is not a file; write the path of a plan",
        ],
    ),
    (
        "sharding.partitioner=ldmm",
        [
            "sharding.partitioner: 'ldmm' is not a partitioner; Choices: auto, greedy",
        ],
    ),
    (
        "data=criteo",
        [
            "data.path: is not set, and data=criteo reads files; write data.path=FILE_OR_FOLDER",
        ],
    ),
    (
        "data=null",
        [
            "data: null is not a choice of data; Choices: criteo, csv, parquet, synthetic",
        ],
    ),
    (
        "data.global_batch_size=0",
        [
            "data.global_batch_size: 0 is below the limit 1; write it like 2048",
        ],
    ),
    (
        "data.path=train.tsv",
        [
            (
                "data.path: has no effect on data=synthetic: it makes its samples on the fly; "
                "model.num_embeddings defines its features; remove it"
            ),
        ],
    ),
    (
        "data=synthetic data.num_samples=many",
        [
            "data.num_samples: 'many' is not a whole number, or null",
        ],
    ),
    (
        "model.num_embeddings=[10,20] model.pooling_factors=[1]",
        [
            "model.pooling_factors: 1 entries, but num_embeddings has 2; give both one entry per table",
        ],
    ),
    (
        "trainer.devices",
        [
            "trainer.devices: is not an override; write trainer.devices=VALUE",
        ],
    ),
    (
        "=3",
        [
            "=3: has no key; write KEY=VALUE",
        ],
    ),
    (
        "trainer.devices = 2",
        [
            "trainer.devices = 2: has blanks around its key; write KEY=VALUE",
        ],
    ),
    (
        "data.path=/a=b",
        [
            (
                "data.path: '/a=b' cannot be parsed (mismatched input '=' expecting <EOF>); quote it for Hydra "
                "and for the shell: 'data.path=\"/a=b\"'"
            ),
        ],
    ),
    (
        "model.bottom_mlp=[64,32",
        [
            "model.bottom_mlp: '[64,32' has an open bracket; close it, and quote the override for the shell",
        ],
    ),
    (
        "sharding=auto,row_wise",
        [
            "sharding: 'sharding=auto,row_wise' is a sweep; add -m to run every point, or write a list as [a,b]",
        ],
    ),
    (
        "optim.sparse.lr=range(1,4)",
        [
            (
                "optim.sparse.lr: 'optim.sparse.lr=range(1,4)' is a sweep; add -m to run every point, or write "
                "a list as [a,b]"
            ),
        ],
    ),
    (
        "seed=-1",
        [
            "seed: -1 is outside [0, 2^63)",
        ],
    ),
    (
        "seed=[1,2]",
        [
            "seed: '[1,2]' is not a whole number",
        ],
    ),
    (
        "launch.shutdown_timeout_s=1",
        [
            "launch.shutdown_timeout_s: 1 is outside [3, 45]",
        ],
    ),
    (
        "data.path=${nope}",
        [
            "data.path: cannot be resolved: Interpolation key 'nope' not found",
        ],
    ),
    (
        "data.path=???",
        [
            "data.path: has no value ('???'); write data.path=VALUE",
        ],
    ),
    (
        "trainer.callbacks=[x]",
        [
            f"trainer.callbacks: no such key (given '[x]'); Keys of trainer: {_TRAINER_KEYS}",
        ],
    ),
]

MISTAKES += [
    ("checkpoint.every_n_steps=0", ["checkpoint.every_n_steps: 0 is below the limit 1; write 1 to 2^62"]),
    ("checkpoint.keep_last=0", ["checkpoint.keep_last: 0 is below the limit 1; write 1 to 2^62"]),
    ("checkpoint.every_minutes=0", ["checkpoint.every_minutes: 0.0 is below the limit 0.01; write 0.01 to 525600"]),
    (
        "checkpoint.monitor=aucc",
        [
            "checkpoint.monitor: 'aucc' is not a validation metric; did you mean 'auc'? "
            "Choices: accuracy, auc, log_loss, ne",
        ],
    ),
    (
        "checkpoint.monitor=auc data.val_samples=0",
        [
            "checkpoint.monitor: 'auc' has no effect: there is no validation data; set data.val_path, or leave it out",
        ],
    ),
    (
        "checkpoint.keep_best=2",
        [
            "checkpoint.keep_best: 2 has no effect without checkpoint.monitor; choose what is best: "
            "auc, ne, log_loss, accuracy",
        ],
    ),
    (
        "checkpoint.resume=nowhere",
        ["checkpoint.resume: 'nowhere' does not exist; name a checkpoint, a folder of them, or a run folder"],
    ),
    ("checkpoint.weights_from=docs", ["checkpoint.weights_from: 'docs' holds no complete checkpoint"]),
    (
        "checkpoint.resume=auto checkpoint.weights_from=docs",
        [
            "checkpoint.weights_from: 'docs' contradicts checkpoint.resume, which takes weights and everything else; "
            "use one of them",
            "checkpoint.weights_from: 'docs' holds no complete checkpoint",
        ],
    ),
]

MISTAKES += [
    ("trainer.devices=[0,1]", ["trainer.devices: '[0,1]' is not 'auto' or a whole number"]),
    ("trainer.devices=true", ["trainer.devices: 'true' is neither 'auto' nor a number of processes"]),
    ("data.global_batch_size=1.5", ["data.global_batch_size: '1.5' is not 'auto' or a whole number"]),
    (
        "data.out_of_range=clamp",
        [
            "data.out_of_range: 'clamp' is not a policy for ids out of range; did you mean 'clamp_zero'? "
            "Choices: clamp_zero, drop, error"
        ],
    ),
    ("data.limit_samples=0", ["data.limit_samples: 0 is below the limit 1; write 1 to 2^62"]),
    ("sharding.type=null", ["sharding.type: null is not text"]),
    (
        "sharding.type=true",
        [f"sharding.type: 'true' is not a sharding type; Choices: {_SHARDINGS}"],
    ),
    (
        "++sharding.tables.sparse_1.type=null",
        [f"sharding.tables.sparse_1.type: 'null' is not a sharding type; Choices: {_TYPES}"],
    ),
    (
        "model.bottom_mlp=[1,null,true]",
        ["model.bottom_mlp: '[1,null,true]' is not a list of whole numbers like [1,2], or null"],
    ),
    (
        "+model={name:dlrm}",
        ["model: '+' adds keys, and this one exists; set its keys one by one, like model.KEY=VALUE"],
    ),
    (
        "+recipes@x=quickstart",
        ["recipes: '+recipes@x=quickstart' moves a group to another place; write +recipes=NAME"],
    ),
    ("+", ["+: has no key; write KEY=VALUE"]),
    (
        "checkpoint.keep_last=-1 checkpoint.resume=",
        [
            "checkpoint.keep_last: -1 is below the limit 1; write 1 to 2^62",
            "checkpoint.resume: '' names no file or folder; name it, or write null (an unset variable of a shell "
            "leaves nothing)",
        ],
    ),
    (
        "checkpoint.keep_last=-1 checkpoint.weights_from=/no/where",
        [
            "checkpoint.keep_last: -1 is below the limit 1; write 1 to 2^62",
            "checkpoint.weights_from: '/no/where' does not exist; name a checkpoint, a folder of them, or a run folder",
        ],
    ),
    ("ops=FBGEMM", ["ops: 'FBGEMM' is not a choice of ops; did you mean 'fbgemm'? Choices: auto, fbgemm, reference"]),
    (
        "callbacks.early_stoping.patience=3",
        [
            "callbacks.early_stoping.patience: no such key (given '3'); "
            "did you mean 'callbacks.early_stopping.patience'? Keys of callbacks: "
            "assert_trained, early_stopping, learning_rate_monitor, options, own, profiler, stop_at",
        ],
    ),
    ("+model", ["+model: is not an override; write model=VALUE"]),
    ("+recipes", ["+recipes: is not an override; write +recipes=VALUE"]),
    (
        "+recipes={a:1}",
        ["recipes: '{a:1}' is not a choice of recipes; Choices: criteo_kaggle, mlperf_dlrm_dcnv2, quickstart"],
    ),
    ("comms=fp61", ["comms: 'fp61' is not a choice of comms; did you mean 'fp16'? Choices: bf16, fp16, fp32, int8"]),
    (
        "comms.backward=int4",
        ["comms.backward: 'int4' is not a codec; did you mean 'int8'? Choices: bf16, fp16, fp32, int8"],
    ),
    ("comms.loss_scale=0", ["comms.loss_scale: 0.0 is outside [2^-32, 2^64], and is not null"]),
    ("comms.exchange=ring", ["comms.exchange: 'ring' is not an exchange; Choices: auto, flat, hierarchical"]),
    (
        "sharding=gird",
        [f"sharding: 'gird' is not a choice of sharding; did you mean 'grid'? Choices: {_SHARDINGS}"],
    ),
    (
        "++sharding.tables.sparse_1.type=table_rowwise",
        [
            "sharding.tables.sparse_1.type: 'table_rowwise' is not a sharding type; did you mean 'table_row_wise'? "
            f"Choices: {_TYPES}"
        ],
    ),
    (
        "sharding.column_wise_semantics=exactly",
        [
            "sharding.column_wise_semantics: 'exactly' is not a column-wise semantics; did you mean 'exact'? "
            "Choices: exact, per_shard"
        ],
    ),
    (
        "sharding=table_row_wise sharding.column_wise_semantics=per_shard",
        [
            "sharding.column_wise_semantics: 'per_shard' has no effect on 'table_row_wise': no table is split by "
            "columns; leave it out"
        ],
    ),
    (
        "sharding=grid sharding.partitioner=greedy",
        [
            "sharding.partitioner: greedy has no effect on 'grid'; leave it at auto, or use table_wise or column_wise",
        ],
    ),
    (
        "++sharding.tables.sparse_1={type:row_wise,tier:ddr}",
        ["sharding.tables.sparse_1.tier: 'tier' is not built yet; Choices: type"],
    ),
    ("sharding.partitioner=ldm", ["sharding.partitioner: 'ldm' is not built yet; Choices: auto, greedy"]),
    ("explain=sparse_1", ["explain: is not built yet; leave it out"]),
]


@pytest.fixture(autouse=True)
def _host_without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    register()
    monkeypatch.setattr(cross_checks, "num_gpus", lambda: 0)


def _findings(*overrides: str, multirun: bool = False, config_dir: str | None = None) -> list[str]:
    source = ConfigSource(config_dir=config_dir)
    found = check_command_line(overrides, source, purpose=Purpose.TRAIN, multirun=multirun)
    return [str(finding) for finding in found]


def test_r33_there_are_thirty_mistakes_and_more() -> None:
    assert len(MISTAKES) >= 30


@pytest.mark.parametrize(("command", "expected"), MISTAKES, ids=[command for command, _ in MISTAKES])
def test_r33_mistake_is_found(command: str, expected: list[str]) -> None:
    overrides = [command] if " = " in command else command.split(" ")
    assert _findings(*overrides) == expected


def test_r33_five_mistakes_of_five_kinds_come_in_one_list() -> None:
    found = check_command_line(
        ["sharding=tabel_wise", "optim.sparse.lr=-1", "trainer.max_step=10", "data.path=/a=b", "+seed=1"],
        ConfigSource(),
        purpose=Purpose.TRAIN,
        multirun=False,
    )
    assert str(ConfigError(found)) == "\n".join(
        [
            "5 mistakes in the configuration:",
            "  data.path: '/a=b' cannot be parsed (mismatched input '=' expecting <EOF>); "
            "quote it for Hydra and for the shell: 'data.path=\"/a=b\"'",
            f"  sharding: 'tabel_wise' is not a choice of sharding; did you mean 'table_wise'? Choices: {_SHARDINGS}",
            "  seed: '+' adds keys, and this one exists; write seed=1",
            "  trainer.max_step: no such key (given '10'); did you mean 'trainer.max_steps'? "
            f"Keys of trainer: {_TRAINER_KEYS}",
            "  optim.sparse.lr: -1.0 is below the limit 0; write 0 or more",
        ]
    )


@pytest.mark.parametrize(
    "command",
    [
        "",
        "sharding=row_wise",
        "++sharding.tables.sparse_1.type=row_wise",
        "++sharding.tables.sparse_1={type:row_wise}",
        "hydra.run.dir=/tmp/somewhere hydra/job_logging=none",
        "data.path=null",
        "optim.sparse={lr:0.1,eps:1e-6}",
        "trainer.devices=3 trainer.max_steps=10 trainer.max_epochs=null",
        "hardware.accelerator.hbm.capacity=16GiB hardware.scale_out.bandwidth=200Gbps",
        "model.num_embeddings=[10,20]",
        "launch.threads_per_worker=${trainer.num_nodes}",
    ],
)
def test_a_good_command_has_no_finding(command: str) -> None:
    assert _findings(*command.split()) == []


def test_a_wrong_choice_does_not_hide_or_add_mistakes_of_its_group() -> None:
    found = _findings("sharding=fiel", "sharding.path=missing.json")
    assert found[0].startswith("sharding: 'fiel' is not a choice of sharding; did you mean 'file'?")
    assert found[1:] == ["sharding.path: 'missing.json' is not a file; write the path of a plan"]


def test_every_point_of_a_sweep_is_checked() -> None:
    found = _findings("sharding=auto,row_wiese", "optim.sparse.lr=0.1,-0.2,-0.3", multirun=True)
    assert found == [
        "points 1, 4 (optim.sparse.lr=-0.2): optim.sparse.lr: -0.2 is below the limit 0; write 0 or more",
        "points 2, 5 (optim.sparse.lr=-0.3): optim.sparse.lr: -0.3 is below the limit 0; write 0 or more",
        "points 3, 4, 5 (sharding=row_wiese): sharding: 'row_wiese' is not a choice of sharding; "
        f"did you mean 'row_wise'? Choices: {_SHARDINGS}",
    ]
    assert _findings("optim.sparse.lr=interval(0,1)", multirun=True) == [
        "optim.sparse.lr: 'optim.sparse.lr=interval(0,1)' is no list of points; use choice(a,b) or range(1,4)"
    ]
    assert _findings("sharding=auto,row_wise", "optim.sparse.lr=choice(0.1,0.2)", multirun=True) == []
    assert _findings("seed=range(0,12)", "optim.sparse.lr=0.1,-1", "typo=1", multirun=True)[:2] == [
        _findings("typo=1")[0],  # A mistake of every point is not one of a point.
        "points 1, 3, 5, 7, 9, 11, … (12 points) (optim.sparse.lr=-1): optim.sparse.lr: -1.0 is below the limit 0; "
        "write 0 or more",
    ]


def test_what_is_about_the_whole_sweep_is_not_swept() -> None:
    assert _findings("sweep.on_failure=continue,stop", "hydra.job.name=a,b", multirun=True) == [
        "sweep.on_failure: 'sweep.on_failure=continue,stop' is about the whole sweep and cannot differ between its "
        "points; give it one value",
        "hydra.job.name: 'hydra.job.name=a,b' is about the whole sweep and cannot differ between its points; "
        "give it one value",
    ]
    assert _findings("sweep.on_failure=stopp") == [
        "sweep.on_failure: 'stopp' is not a way to go on; did you mean 'stop'? Choices: continue, stop"
    ]


def test_sweeps_that_files_have_are_expanded_and_the_command_line_wins() -> None:
    def findings(*overrides: str) -> list[str]:
        found = check_command_line(
            overrides,
            ConfigSource(),
            purpose=Purpose.TRAIN,
            multirun=True,
            sweeper_params=("optim.sparse.lr=0.1,-2", "seed=[", "trainer.devices=1,2"),
        )
        return [str(finding) for finding in found]

    assert findings() == [
        "hydra.sweeper.params.seed: '[' has an open bracket; close it, and quote the override for the shell",
        "points 2, 3 (optim.sparse.lr=-2): optim.sparse.lr: -2.0 is below the limit 0; write 0 or more",
    ]
    assert findings("optim.sparse.lr=0.5")[1:] == []


def test_kernel_that_was_asked_for_by_name_and_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    from neo.ops import spec

    status = spec.FbgemmStatus(False, "fbgemm_gpu 1.4.0 was not built for torch 2.13.0; install fbgemm-gpu-cpu==1.8.*")
    monkeypatch.setattr(spec, "fbgemm_status", lambda: status)
    assert _findings("ops=fbgemm") == [
        "ops.backend: 'fbgemm' was asked for by name, but fbgemm_gpu 1.4.0 was not built for torch 2.13.0; "
        "install fbgemm-gpu-cpu==1.8.*; or use ops=auto"
    ]
    assert _findings() == []


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            "++sharding.tables.nosuch.type=row_wise sharding=tabel_wise optim.sparse.lr=-1",
            [
                f"sharding: 'tabel_wise' is not a choice of sharding; did you mean 'table_wise'? Choices: {_SHARDINGS}",
                "optim.sparse.lr: -1.0 is below the limit 0; write 0 or more",
                "sharding.tables.nosuch: 'nosuch' is not a table; Choices: sparse_0, sparse_1, sparse_2, sparse_3, "
                "sparse_4, sparse_5, sparse_6, sparse_7",
            ],
        ),
        (
            "ops=fbgemm model.embedding_dim=6",
            [
                "ops.backend: fbgemm needs widths that are multiples of 4; sparse_0, sparse_1, sparse_2 and 5 more "
                "have 6; use ops=auto, which gives such tables to another backend"
            ],
        ),
        (
            "++sharding.tables.sparse_1.type=column_wise ops=fbgemm trainer.num_nodes=2",
            [
                "trainer.num_nodes: 2 nodes, but workers are started on this host only; "
                "start this command on every node with torchrun or srun",
                "ops.backend: fbgemm does not share a row's rowwise_adagrad state over column shards, and those of "
                "sparse_1 are split; use ops=auto, which gives such tables to another backend, or "
                "sharding.column_wise_semantics=per_shard",
            ],
        ),
        (
            "sharding=grid ops=fbgemm trainer.devices=4 hardware.accelerators_per_node=2",
            [
                "ops.backend: fbgemm does not share a row's rowwise_adagrad state over column shards, and those of "
                "sparse_0, sparse_1, sparse_2 and 5 more are split; use ops=auto, which gives such tables to another "
                "backend, or sharding.column_wise_semantics=per_shard",
            ],
        ),
        (
            "++optim.sparse.tables.sparse_11.lr=0.1 ++optim.sparse.tables.sparse_1.lr=0.1 sharding=grid",
            [
                "optim.sparse.tables.sparse_11: 'sparse_11' is not a table; did you mean 'sparse_1'? Choices: "
                "sparse_0, sparse_1, sparse_2, sparse_3, sparse_4, sparse_5, sparse_6, sparse_7",
            ],
        ),
        (
            "optim.sparse.lr=0 ++optim.sparse.tables.sparse_1.lr=0.1 ++optim.sparse.tables.sparse_2.lr=0",
            [
                "optim.sparse.tables.sparse_1.lr: 0.1 has no ratio to optim.sparse.lr=0, which schedules change for "
                "all tables; set optim.sparse.lr above 0",
            ],
        ),
        (
            "optim.sparse.tables.sparse_1.lr=0.1",
            [
                "optim.sparse.tables.sparse_1.lr: 'optim.sparse.tables.sparse_1.lr=0.1' has to be added to a mapping; "
                "write ++optim.sparse.tables.sparse_1.lr=0.1",
            ],
        ),
        (
            "trainer.num_nodes=2 trainer.precision=64",
            [
                "trainer.precision: '64' is not a precision; Choices: 32-true, bf16-mixed",
                "trainer.num_nodes: 2 nodes, but workers are started on this host only; "
                "start this command on every node with torchrun or srun",
            ],
        ),
    ],
)
def test_mistakes_that_depend_on_tables_come_in_the_same_list(
    command: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from neo.ops import spec

    monkeypatch.setattr(spec, "fbgemm_status", lambda: spec.FbgemmStatus(True))
    assert _findings(*command.split()) == expected


def test_the_tables_of_criteo_and_of_a_list_are_known_too(tmp_path: Path) -> None:
    data, tables, plan = tmp_path / "day.tsv", tmp_path / "tables.csv", tmp_path / "plan.json"
    data.write_text("")
    tables.write_text("name,rows,dim,pooling\nuser,10,8,1\n")
    plan.write_text("tables:")
    found = _findings("data=criteo", f"data.path={data}", "++sharding.tables.C27.type=row_wise")
    assert [line for line in found if line.startswith("sharding.tables.C27: 'C27' is not a table; did you mean 'C7'?")]
    found = _findings("model=table_list", f"model.path={tables}", "++sharding.tables.users.type=row_wise")
    assert "sharding.tables.users: 'users' is not a table; did you mean 'user'? Choices: user" in found
    assert _findings("sharding=file", f"sharding.path={plan}", "seed=-1") == [
        "seed: -1 is outside [0, 2^63)",
        f"sharding.path: '{plan}' is not JSON: line 1, column 1: Expecting value",
    ]


def test_ranks_that_something_else_started_may_be_on_many_nodes() -> None:
    overrides = ["trainer.num_nodes=2", "sharding=column_wise", "ops=fbgemm"]
    found = check_command_line(overrides, ConfigSource(), purpose=Purpose.TRAIN, multirun=False, num_started=1)
    assert found == []
