"""The Lightning strategy: embedding tables sharded by a plan, the dense part replicated under DDP."""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.types import STEP_OUTPUT
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.data import DataLoader
from typing_extensions import override

from neo.checkpoint.compare import table_entries
from neo.checkpoint.folder import find_checkpoint
from neo.checkpoint.manifest import Facts
from neo.checkpoint.store import ModelTables, load_rest, load_tables, save_checkpoint
from neo.comms.collectives import TorchCollectives, Traffic
from neo.comms.spec import CommsSpec
from neo.data.spec import Uneven
from neo.errors import CheckpointError, ConfigError, Finding, UnsupportedError, unknown_name
from neo.hardware.spec import HardwareConfig
from neo.ops.spec import AUTO, Device
from neo.plan.check import check_plan
from neo.plan.fingerprint import plan_fingerprint
from neo.plan.sharding_plan import ColumnWiseSemantics, ShardingPlan
from neo.planner.planner import make_plan
from neo.planner.spec import ShardingMode, ShardingSpec
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.strategy.agreement import require_agreement
from neo.strategy.collections import (
    find_collections,
    optimizers_by_key,
    plan_keys,
    sparse_groups,
    tables_by_key,
)
from neo.strategy.epoch_loader import EpochLoader
from neo.strategy.ordered_sum import sum_in_rank_order
from neo.strategy.rank_sampler import deal_over_ranks
from neo.strategy.traffic import TrafficBytes
from neo.strategy.trainer_check import check_trainer, refuse_clipping
from neo.strategy.user_loader import InStepLoader
from neo.tables.spec import TableSpec


class NeoStrategy(DDPStrategy):
    """Train a LightningModule that contains ``EmbeddingBagCollection`` modules.

    Their tables are laid over the ranks as the plan says and are updated inside the backward; everything else is
    replicated under DDP. The loss of ``training_step`` must be a mean over the local samples: it is weighted so that
    the average over ranks is the mean over the global batch, whatever each rank's share.

    Args:
        plan: Where each table goes, by ``path.of.collection.table``; made by the planner if None.
        sharding: What the planner is to do without a plan: ``auto``, or one sharding type for every table.
        backend: The ops backend of a plan made here: ``auto``, ``fbgemm``, ``reference``, ... With ``auto`` a
            backend that does not load is replaced by the reference, with a warning.
        comms: Codecs of the pooled exchange.
        column_wise_semantics: What a row-wise optimizer does on tables that are split by columns: ``exact`` trains like
            the unsharded table, ``per_shard`` lets every column shard keep its own state. None: what ``plan`` says,
            else ``exact``.
        seed: Decides the initial weights of the tables, and the order of a user's shuffled DataLoader.
        uneven: What happens when the ranks' loaders have unequal numbers of batches: ``error``, ``stop`` or ``pad``.
        fingerprints: More values that must be equal on all ranks, by name.
        ddp_kwargs: Passed on to Lightning's DDPStrategy and DistributedDataParallel.

    Attributes:
        plan_fingerprint: Of plan and tables; empty before ``setup``.
        checkpoint_facts: Gives what a checkpoint's manifest says of the run; None says what the Trainer knows.
        checkpoint_copies: Files and folders that every checkpoint keeps a copy of, by their name there.

    Raises:
        ConfigError: ``sharding``, ``column_wise_semantics`` or ``uneven`` is no such name, or ``plan`` was made with
            other semantics.
    """

    strategy_name = "neo"

    def __init__(
        self,
        *,
        plan: ShardingPlan | None = None,
        sharding: str = ShardingMode.AUTO.value,
        backend: str = AUTO,
        comms: CommsSpec | None = None,
        column_wise_semantics: str | None = None,
        seed: int = 0,
        uneven: str = Uneven.ERROR.value,
        fingerprints: Mapping[str, str] | None = None,
        **ddp_kwargs: Any,
    ) -> None:
        super().__init__(**ddp_kwargs)
        _check_names(sharding, column_wise_semantics, uneven)
        self._given_plan = plan
        semantics = None if column_wise_semantics is None else ColumnWiseSemantics(column_wise_semantics)
        if plan is not None:
            _check_semantics(plan, semantics)
        self._sharding = ShardingSpec(type=ShardingMode(sharding), column_wise_semantics=semantics)
        self._backend = backend
        self._comms = comms if comms is not None else CommsSpec()
        self._seed = seed
        self._uneven = Uneven(uneven)
        self._fingerprints = dict(fingerprints or {})
        self._collections: dict[str, EmbeddingBagCollection] = {}
        self._groups: dict[str, dict[str, Any]] = {}
        self._unstepped: set[str] = set()  # collections that had a backward since the last optimizer step
        self._deals_samples: bool | None = None
        self._sent: tuple[Traffic, int] | None = None  # of the embedding exchange, and the ranks of a full node
        self._executed: tuple[ShardingPlan | None, ColumnWiseSemantics] = (None, ColumnWiseSemantics.EXACT)
        self._loading: Path | None = None
        self.plan_fingerprint = ""
        self.checkpoint_facts: Callable[[], Facts] | None = None
        self.checkpoint_copies: Mapping[str, Path] = {}

    @property
    def traffic(self) -> TrafficBytes:
        """What this rank has sent for its tables so far; without tables sharded here, nothing."""
        if self._sent is None:
            return TrafficBytes()
        traffic, local_world_size = self._sent
        return TrafficBytes.of(traffic, rank=self.global_rank, local_world_size=local_world_size)

    @override
    def setup(self, trainer: pl.Trainer) -> None:
        """Shard the tables before DDP and the optimizers see the module.

        Raises:
            UnsupportedError: The Trainer, the module or its optimizer does not fit; says what to write.
            ConfigError: The plan does not fit the tables or the world.
            RanksDisagreeError: Ranks hold different plans, tables or fingerprints.
        """
        check_trainer(trainer)
        self._take_over_sampling(trainer)
        assert self.lightning_module is not None
        self._collections = find_collections(self.lightning_module)
        unsharded = {path: found for path, found in self._collections.items() if not found.is_sharded}
        if unsharded:
            self._shard(unsharded)
        super().setup(trainer)
        refuse_clipping(self.precision_plugin)
        if self.optimizers:
            self._groups = sparse_groups(self._collections, self.optimizers)

    def _shard(self, collections: Mapping[str, EmbeddingBagCollection]) -> None:
        collectives = TorchCollectives(dist.new_group())  # embedding traffic is kept apart from DDP's
        tables = tables_by_key(collections)
        plan = self._given_plan if self._given_plan is not None else self._make_plan(collections)
        self.plan_fingerprint = plan_fingerprint(plan, tables)
        own = {"plan": self.plan_fingerprint, "tables": _tables_fingerprint(tables)}
        require_agreement({**self._fingerprints, **own}, collectives)
        findings = check_plan(plan, tables, collectives.world_size, plan.local_world_size)
        if findings:
            raise ConfigError([finding.under("plan") for finding in findings])
        self._sent = (collectives.traffic, plan.local_world_size)
        semantics = plan.column_wise_semantics or self._sharding.semantics
        self._executed = (plan, semantics)
        for path, collection in collections.items():
            collection.shard(
                plan=plan,
                keys=plan_keys(path, collection),
                collectives=collectives,
                device=self.root_device,
                seed=self._seed,
                comms=self._comms,
                may_fall_back=self._backend == AUTO,
                column_wise_semantics=semantics,
            )

    def _make_plan(self, collections: Mapping[str, EmbeddingBagCollection]) -> ShardingPlan:
        """Plan all tables together; ranks share nothing here, the fingerprints are compared."""
        # Where the Trainer has several nodes, its node is the plan's; otherwise all ranks share one.
        per_node = self.num_processes if self.num_nodes > 1 else None
        hardware = HardwareConfig(name="local", detect=True, accelerators_per_node=per_node).to_spec()
        optimizers = optimizers_by_key(collections)
        result = make_plan(
            tables_by_key(collections),
            sharding=self._sharding,
            hardware=hardware,
            world_size=self.world_size,
            optimizer=next(iter(optimizers.values())),
            table_optimizers=optimizers,
            ops_backend=self._backend,
            device=Device(self.root_device.type),
        )
        return result.plan

    @override
    def _setup_model(self, model: torch.nn.Module) -> torch.nn.Module:  # type: ignore[override]
        """Wrap the module in DDP, unless it has no dense parameter to average."""
        if not any(parameter.requires_grad for parameter in model.parameters()):
            return model
        return super()._setup_model(model)

    @override
    def _register_ddp_hooks(self) -> None:
        if self.model is self.lightning_module:
            return
        super()._register_ddp_hooks()
        if self.root_device.type == "cpu" and self.world_size > 2:
            assert isinstance(self.model, DistributedDataParallel)
            self.model.register_comm_hook(dist.group.WORLD, sum_in_rank_order)

    @override
    def training_step(self, *args: Any, **kwargs: Any) -> STEP_OUTPUT:
        """Hand the scheduled learning rates to the tables, which read them in the forward; then run the step."""
        for path, collection in self._collections.items():
            collection.set_learning_rate(float(self._groups[path]["lr"]))
        return super().training_step(*args, **kwargs)

    @override
    def backward(self, closure_loss: Tensor, optimizer: Optimizer | None, *args: Any, **kwargs: Any) -> Tensor:
        """Weight the local mean loss by this rank's share of the global batch, so that DDP's average is exact."""
        read = [collection for collection in self._collections.values() if any(collection.last_batch_sizes)]
        weights = {collection.loss_weight for collection in read} or {1.0}
        if len(weights) > 1:
            sizes = [collection.last_batch_sizes for collection in read]
            raise UnsupportedError(f"collections read batches of different sizes ({sizes}); read one batch with all")
        weight = weights.pop()
        weighted = closure_loss if weight == 1.0 else closure_loss * weight
        before = {path: collection.engine.num_backwards for path, collection in self._collections.items()}
        loss = super().backward(weighted, optimizer, *args, **kwargs)
        moved = {path for path, count in before.items() if self._collections[path].engine.num_backwards != count}
        if moved & self._unstepped:
            raise UnsupportedError(
                f"two backwards for the collection '{min(moved & self._unstepped)}' without an optimizer step between "
                f"them: its tables took a step for each, the dense part will take one for both; call step() after "
                f"every backward, and use a larger batch instead of accumulating"
            )
        self._unstepped |= moved
        return loss

    @override
    def optimizer_step(self, optimizer: Optimizer, closure: Callable[[], Any], model: Any = None, **kwargs: Any) -> Any:
        """Run the step, and note that the next backward begins a new one."""
        output = super().optimizer_step(optimizer, closure, model, **kwargs)
        self._unstepped.clear()
        return output

    def _take_over_sampling(self, trainer: pl.Trainer) -> None:
        """Lightning's own sampler repeats samples to fill the last batch, and shuffles what was not to be shuffled."""
        connector = trainer._accelerator_connector
        if self._deals_samples is None:
            self._deals_samples = connector.use_distributed_sampler
        connector.use_distributed_sampler = False

    @override
    def process_dataloader(self, dataloader: object) -> object:
        """Deal a user's loader over the ranks and keep the ranks in step; ours is in step by construction."""
        if isinstance(dataloader, EpochLoader):
            return dataloader
        if not isinstance(dataloader, Iterable):
            raise UnsupportedError(f"a loader must be iterable, which {type(dataloader).__name__} is not")
        if isinstance(dataloader, DataLoader) and self._deals_samples and self.world_size > 1:
            deal_over_ranks(dataloader, rank=self.global_rank, world_size=self.world_size, seed=self._seed)
        return InStepLoader(dataloader, policy=self._uneven, collectives=TorchCollectives())

    @property
    @override
    def restore_checkpoint_after_setup(self) -> bool:
        """Tables can be read once they are sharded."""
        return True

    @override
    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Write a checkpoint folder with the sharded tables and what Lightning wants to keep. Every rank calls it.

        Raises:
            CheckpointError: Any rank cannot write; every rank raises, and earlier checkpoints are untouched.
        """
        assert self.lightning_module is not None
        trainer = self.lightning_module.trainer
        facts = Facts(trainer.global_step, trainer.current_epoch, plan_fingerprint=self.plan_fingerprint)
        save_checkpoint(
            Path(filepath),
            self._tables,
            rest=checkpoint,
            facts=facts if self.checkpoint_facts is None else self.checkpoint_facts(),
            copies=self.checkpoint_copies,
            collectives=TorchCollectives(),
        )

    @override
    def load_checkpoint(
        self, checkpoint_path: str | os.PathLike[str], weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Return what Lightning kept in a checkpoint; ``load_model_state_dict`` reads the tables.

        Raises:
            CheckpointError: The checkpoint is incomplete or damaged.
        """
        self._loading = find_checkpoint(Path(checkpoint_path))
        return load_rest(self._loading)

    @override
    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Read the tables, and set the dense part. Outside of training the optimizer states are left alone.

        Raises:
            CheckpointError: The checkpoint is damaged, or of another model; says what differs.
        """
        assert self.lightning_module is not None
        assert self._loading is not None
        is_training = self.lightning_module.trainer.state.fn == TrainerFn.FITTING
        self._load(self._loading, checkpoint, weights_only=not is_training, strict=strict)

    @override
    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Restore the optimizers, whose parameter groups are other objects afterwards."""
        super().load_optimizer_state_dict(checkpoint)
        self._groups = sparse_groups(self._collections, self.optimizers)

    def load_weights(self, path: str | os.PathLike[str]) -> None:
        """Read the weights of tables and dense part alone; optimizers and steps begin anew. Every rank calls it.

        Raises:
            CheckpointError: The checkpoint is incomplete or damaged, or its tables or dense parameters are others.
        """
        found = find_checkpoint(Path(path))
        self._load(found, load_rest(found), weights_only=True, strict=True)

    def _load(self, path: Path, rest: Mapping[str, Any], *, weights_only: bool, strict: bool) -> None:
        assert self.lightning_module is not None
        load_tables(path, self._tables, collectives=TorchCollectives(), weights_only=weights_only)
        try:
            self.lightning_module.load_state_dict(rest["state_dict"], strict=strict)
        except RuntimeError as error:
            raise CheckpointError(f"'{path}' is a checkpoint of another model: {error}") from None

    @property
    def _tables(self) -> ModelTables:
        """The tables as a checkpoint sees them."""
        collections = self._collections
        plan, semantics = self._executed
        entries = table_entries(
            tables_by_key(collections), optimizers_by_key(collections), plan=plan, semantics=semantics
        )
        keys = {path: plan_keys(path, collection) for path, collection in collections.items()}
        return ModelTables(collections, keys, entries)


def _check_semantics(plan: ShardingPlan, asked: ColumnWiseSemantics | None) -> None:
    written = plan.column_wise_semantics
    if asked is not None and written is not None and asked is not written:
        problem = f"'{asked}' contradicts the plan, which was made with '{written}'"
        raise ConfigError([Finding("column_wise_semantics", problem, "leave it out to train as planned")])


def _check_names(sharding: str, semantics: str | None, uneven: str) -> None:
    findings = []
    modes = [mode.value for mode in ShardingMode if mode is not ShardingMode.FILE]
    if sharding not in modes:
        findings.append(unknown_name("sharding", sharding, "sharding type", modes))
    if semantics is not None and semantics not in list(ColumnWiseSemantics):
        choices = list(ColumnWiseSemantics)
        findings.append(unknown_name("column_wise_semantics", semantics, "column-wise semantics", choices))
    if uneven not in list(Uneven):
        findings.append(unknown_name("uneven", uneven, "policy for uneven loaders", list(Uneven)))
    if findings:
        raise ConfigError(findings)


def _tables_fingerprint(tables: Mapping[str, TableSpec]) -> str:
    """Hash the tables in declared order, which decides the order of every exchange."""
    return hashlib.sha256(repr(list(tables.items())).encode()).hexdigest()[:16]
