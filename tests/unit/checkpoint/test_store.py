"""Tables through a checkpoint: any plan and world writes, any other reads, and nothing else changes."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from neo.checkpoint.compare import differences, table_entries
from neo.checkpoint.folder import complete_checkpoints, find_checkpoint, step_name, verify
from neo.checkpoint.manifest import Facts, TableEntry, read_manifest
from neo.checkpoint.store import ModelTables, load_rest, load_tables, read_table, save_checkpoint
from neo.comms.collectives import TorchCollectives
from neo.data.batch import SparseFeatures
from neo.errors import CheckpointError
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import ColumnWiseSemantics, ShardingType
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.tables.spec import Pooling, TableSpec, WeightsDtype
from placements import PLACEMENTS, plan_for
from worker_pool import WorkerPool

TABLES = (
    TableSpec("users", 3, 8, ("u",)),  # fewer rows than ranks: empty shards
    TableSpec("items", 17, 6, ("i", "u"), Pooling.MEAN),
)
KEYS = {"model.emb": {table.name: f"model.emb.{table.name}" for table in TABLES}}
ADAGRAD = SparseOptimizerSpec(name="rowwise_adagrad", lr=0.1)
ADAM = SparseOptimizerSpec(name="adam", lr=0.1)
Full = dict[str, Tensor]


def keyed(optimizer: SparseOptimizerSpec) -> dict[str, SparseOptimizerSpec]:
    return dict.fromkeys(KEYS["model.emb"].values(), optimizer)


class Model:
    """A collection under a plan whose tables are placed by the kinds that follow ``kind``."""

    def __init__(self, kind: ShardingType, optimizer: SparseOptimizerSpec, semantics: str = "exact") -> None:
        self.collectives = TorchCollectives()
        first = PLACEMENTS.index(kind)
        kinds = [PLACEMENTS[(first + index) % len(PLACEMENTS)] for index in range(len(TABLES))]
        named = plan_for(TABLES, kinds, self.collectives.world_size)
        plan = replace(named, tables={f"model.emb.{name}": placed for name, placed in named.tables.items()})
        self.collection = EmbeddingBagCollection(TABLES, optimizer=optimizer)
        self.collection.shard(
            plan=plan,
            keys=KEYS["model.emb"],
            collectives=self.collectives,
            device=torch.device("cpu"),
            seed=dist.get_world_size(),  # what is loaded must not be there already
            column_wise_semantics=ColumnWiseSemantics(semantics),
        )
        entries = table_entries(
            {f"model.emb.{table.name}": table for table in TABLES},
            keyed(optimizer),
            plan=plan,
            semantics=ColumnWiseSemantics(semantics),
        )
        self.tables = ModelTables({"model.emb": self.collection}, KEYS, entries)

    def train(self, steps: range) -> None:
        rank, world_size = self.collectives.rank, self.collectives.world_size
        for step in steps:
            bags = [torch.randint(0, 3, (2,), generator=torch.Generator().manual_seed(9 * step + k)) for k in (0, 1)]
            own = [ids if rank == world_size - 1 else ids[:0] for ids in bags]  # one rank has all samples
            sparse = SparseFeatures(("u", "i"), torch.ones(2 * own[0].numel(), dtype=torch.int64), torch.cat(own))
            output = self.collection(sparse)
            (output * torch.arange(1, output.shape[1] + 1)).sum().mul(0.01 * (step + 1) * world_size).backward()

    def save(self, path: Path, rest: dict[str, object] | None = None) -> None:
        save_checkpoint(
            path,
            self.tables,
            rest=rest or {},
            facts=Facts(step=3, samples=6),
            copies={},
            collectives=self.collectives,
        )

    def load(self, path: Path, *, weights_only: bool = False) -> None:
        load_tables(
            path,
            self.tables,
            collectives=self.collectives,
            weights_only=weights_only,
        )

    def full(self) -> Full:
        found = {}
        for table in TABLES:
            found[table.name] = self.collection.full_weight(table.name)
            found |= {f"{table.name}/{name}": value for name, value in self.collection.full_state(table.name).items()}
        return found


def write(
    path: Path, kind: ShardingType, optimizer: SparseOptimizerSpec, semantics: str = "exact"
) -> tuple[Full, Full]:
    """Train 3 steps, save, train 2 more; return both states."""
    model = Model(kind, optimizer, semantics)
    model.train(range(3))
    model.save(path)
    saved = model.full()
    model.train(range(3, 5))
    return saved, model.full()


def read(
    path: Path, kinds: list[ShardingType], optimizer: SparseOptimizerSpec, semantics: str
) -> list[tuple[Full, Full]]:
    results = []
    for kind in kinds:
        model = Model(kind, optimizer, semantics)
        model.load(path)
        loaded = model.full()
        model.train(range(3, 5))
        results.append((loaded, model.full()))
    return results


@pytest.mark.parametrize("optimizer", [ADAGRAD, ADAM], ids=["rowwise_adagrad", "adam"])
@pytest.mark.parametrize("kind", [ShardingType.GRID, ShardingType.DATA_PARALLEL, ShardingType.ROW_WISE])
def test_any_plan_reads_what_any_other_wrote(
    worker_pool: WorkerPool, tmp_path: Path, kind: ShardingType, optimizer: SparseOptimizerSpec
) -> None:
    path = tmp_path / step_name(3)
    saved, ended = worker_pool.run(4, write, path, kind, optimizer)[0]
    for world_size in (1, 3, 4):
        for loaded, after in worker_pool.run(world_size, read, path, list(PLACEMENTS), optimizer, "exact")[0]:
            for name, value in saved.items():
                assert torch.equal(loaded[name], value), name
                torch.testing.assert_close(after[name], ended[name], rtol=0, atol=1e-6, msg=name)


def test_the_same_plan_goes_on_to_the_bit(worker_pool: WorkerPool, tmp_path: Path) -> None:
    for semantics in ("exact", "per_shard"):
        path = tmp_path / semantics
        _, ended = worker_pool.run(2, write, path, ShardingType.COLUMN_WISE, ADAGRAD, semantics)[0]
        for _, after in worker_pool.run(2, read, path, [ShardingType.COLUMN_WISE], ADAGRAD, semantics)[0]:
            assert all(torch.equal(after[name], value) for name, value in ended.items()), semantics


def test_states_of_column_shards_become_their_mean(worker_pool: WorkerPool, tmp_path: Path) -> None:
    path = tmp_path / step_name(3)
    saved, _ = worker_pool.run(2, write, path, ShardingType.COLUMN_WISE, ADAGRAD, "per_shard")[0]
    assert saved["users/sum"].shape == (3, 2)
    ((loaded, _),) = worker_pool.run(1, read, path, [ShardingType.TABLE_WISE], ADAGRAD, "exact")[0]
    torch.testing.assert_close(loaded["users/sum"], saved["users/sum"].mean(dim=1))
    assert float((saved["users/sum"][:, 0] - saved["users/sum"][:, 1]).abs().max()) > 0


def written(tmp_path: Path, pool: WorkerPool, kind: ShardingType = ShardingType.ROW_WISE) -> Path:
    path = tmp_path / "checkpoints" / step_name(3)
    pool.run(2, write, path, kind, ADAGRAD)
    return path


def read_adam(path: Path, weights_only: bool) -> Full:
    model = Model(ShardingType.TABLE_WISE, replace(ADAM, weights_dtype=WeightsDtype.FP16))
    model.load(path, weights_only=weights_only)
    return model.full()


def test_another_optimizer_is_refused_and_weights_alone_can_be_had(worker_pool: WorkerPool, tmp_path: Path) -> None:
    path = written(tmp_path, worker_pool)
    with pytest.raises(CheckpointError) as refused:
        worker_pool.run(2, read_adam, path, False)
    assert "table 'model.emb.users': weights_dtype is fp32 in the checkpoint and fp16 in the model" in str(
        refused.value
    )
    assert "table 'model.emb.users': optimizer is rowwise_adagrad in the checkpoint and adam in" in str(refused.value)
    loaded = worker_pool.run(2, read_adam, path, True)[0]
    whole = read_table(path, read_manifest(path).tables[1])
    assert torch.equal(loaded["items"], whole.half().float())
    assert not loaded["items/exp_avg"].any()


def entries(**changes: object) -> tuple[TableEntry, ...]:
    tables = {f"model.emb.{table.name}": table for table in TABLES}
    users, items = table_entries(tables, keyed(ADAGRAD))
    return users, replace(items, **changes)  # type: ignore[arg-type]


def test_differences_name_table_and_both_values() -> None:
    assert differences(entries(), entries()) == []
    assert differences(entries(), entries(key="model.emb.shops")) == [
        "table 'model.emb.items' is in the checkpoint only",
        "table 'model.emb.shops' is in the model only",
    ]
    (rows,) = differences(entries(), entries(num_embeddings=18))
    assert rows == "table 'model.emb.items': num_embeddings is 17 in the checkpoint and 18 in the model"
    (features,) = differences(entries(), entries(feature_names=("i",)))
    assert features.endswith("feature_names is i, u in the checkpoint and i in the model")
    assert differences(entries(), entries(optimizer="sgd"), weights_only=True) == []


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, r"step_000003' is damaged: tables/__0_0.distcp has \d+ bytes, not \d+; take another checkpoint"),
        (Path.unlink, r"step_000003' is damaged: tables/__0_0.distcp is missing; take another checkpoint"),
        (flip, r"step_000003' is damaged: the content of tables/__0_0.distcp has changed; take another checkpoint"),
    ],
    ids=["truncated", "missing", "flipped byte"],
)
def test_damage_is_found(worker_pool: WorkerPool, tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    path = written(tmp_path, worker_pool)
    shutil.copytree(path, path.with_name(step_name(2)))
    damage(path / "tables" / "__0_0.distcp")
    with pytest.raises(CheckpointError, match=message):
        verify(path)
    found = find_checkpoint(tmp_path)
    assert found.name == (step_name(3) if damage is flip else step_name(2))  # sizes are cheap, contents are not
    with pytest.raises(CheckpointError, match=r"cannot be read: .*__0_0.distcp.* take another checkpoint \(rank 0\)"):
        worker_pool.run(2, read, path, [ShardingType.ROW_WISE], ADAGRAD, "exact")


def test_what_is_no_checkpoint_is_said(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere' does not exist; name a checkpoint, a folder of them, or a run"):
        find_checkpoint(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="holds no complete checkpoint"):
        find_checkpoint(tmp_path)
    broken = tmp_path / step_name(1)
    broken.mkdir()
    with pytest.raises(CheckpointError, match=r"is no complete checkpoint: it holds no checkpoint\.json"):
        find_checkpoint(broken)
    (broken / "checkpoint.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"checkpoint.json' is damaged: JSONDecodeError .*; take an older"):
        read_manifest(broken)
    (broken / "checkpoint.json").write_text(json.dumps({"version": 7}))
    with pytest.raises(CheckpointError, match="has version 7, this neo reads 1; update neo"):
        read_manifest(broken)
    (broken / "rest.pt").write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match=r"rest.pt' is damaged: .*; take another checkpoint"):
        load_rest(broken)
    assert complete_checkpoints(tmp_path) == []


def save_with_a_folder_in_the_way(path: Path) -> None:
    model = Model(ShardingType.ROW_WISE, ADAGRAD)
    model.save(path)
    before = model.full()
    model.train(range(3))
    if dist.get_rank() == 0:
        draft = path.with_name(f".{path.name}.saving")
        draft.write_text("in the way")  # no folder can be made here
    with pytest.raises(CheckpointError, match=r"step_000003' cannot be written: .*\.saving: .* \(rank 0\)"):
        model.save(path)
    model.load(path)
    assert all(torch.equal(value, before[name]) for name, value in model.full().items())


def test_a_failed_save_leaves_the_earlier_checkpoint(worker_pool: WorkerPool, tmp_path: Path) -> None:
    path = tmp_path / step_name(3)
    worker_pool.run(2, save_with_a_folder_in_the_way, path)
    verify(path)


def save_twice(path: Path, source: Path) -> Full:
    model = Model(ShardingType.TABLE_WISE, ADAGRAD)
    model.save(path)
    model.train(range(3))
    model.save(path, {"lr": 0.5, "names": ["a"]})
    return model.full()


def test_a_later_save_takes_the_place_of_an_earlier_one(worker_pool: WorkerPool, tmp_path: Path) -> None:
    path = tmp_path / step_name(3)
    full = worker_pool.run(2, save_twice, path, tmp_path)[0]
    manifest = verify(path)
    assert (manifest.facts.samples, manifest.world_size) == (6, 2)
    assert load_rest(path)["names"] == ["a"]
    assert torch.equal(read_table(path, manifest.tables[0]), full["users"])
    assert [entry.name for entry in tmp_path.iterdir()] == [step_name(3)]
