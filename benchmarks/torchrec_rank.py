"""One rank of TorchRec: its DLRM under DistributedModelParallel, table-wise; started by torchrun in its own venv."""

import argparse
import os
import warnings

import torch
import torch.distributed as dist
from workload import CASES, NUM_DENSE, Clock, Workload, make_inputs, run_rank


def build(case: Workload, world_size: int) -> tuple[torch.nn.Module, object]:
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
    from torchrec.distributed import DistributedModelParallel
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
    from torchrec.models.dlrm import DLRM, DLRMTrain
    from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
    from torchrec.optim.keyed import KeyedOptimizerWrapper
    from torchrec.optim.optimizers import in_backward_optimizer_filter
    from torchrec.optim.rowwise_adagrad import RowWiseAdagrad

    configs = [
        EmbeddingBagConfig(name=f"t{i}", embedding_dim=case.dim, num_embeddings=case.rows, feature_names=[f"f{i}"])
        for i in range(case.num_tables)
    ]
    model = DLRMTrain(
        DLRM(
            embedding_bag_collection=EmbeddingBagCollection(device=torch.device("meta"), tables=configs),
            dense_in_features=NUM_DENSE,
            dense_arch_layer_sizes=[*case.bottom_mlp, case.dim],
            over_arch_layer_sizes=[*case.top_mlp, 1],
            dense_device=torch.device("cpu"),
        )
    )
    apply_optimizer_in_backward(RowWiseAdagrad, model.model.sparse_arch.parameters(), {"lr": 0.01})
    sharders = [EmbeddingBagCollectionSharder()]
    planner = EmbeddingShardingPlanner(
        topology=Topology(world_size=world_size, compute_device="cpu", local_world_size=world_size),
        constraints={config.name: ParameterConstraints(sharding_types=["table_wise"]) for config in configs},
    )
    plan = planner.collective_plan(model, sharders, dist.group.WORLD)
    parallel = DistributedModelParallel(model, device=torch.device("cpu"), plan=plan, sharders=sharders)
    dense = dict(in_backward_optimizer_filter(parallel.named_parameters()))
    return parallel, KeyedOptimizerWrapper(dense, lambda parameters: torch.optim.SGD(parameters, lr=0.01))


def train(arguments: argparse.Namespace, rank: int, world_size: int) -> None:
    warnings.filterwarnings("ignore")
    dist.init_process_group("gloo")
    from torchrec import KeyedJaggedTensor

    case, clock = CASES[arguments.case], Clock(arguments.warmup)
    model, optimizer = build(case, world_size)
    keys = [f"f{i}" for i in range(case.num_tables)]
    inputs = make_inputs(case, rank, world_size)

    class TrainBatch:
        """The attributes that TorchRec's DLRMTrain reads."""

        def __init__(self, index: int) -> None:
            batch = inputs[index % len(inputs)]
            self.dense_features = batch.dense
            self.sparse_features = KeyedJaggedTensor(keys=keys, values=batch.values, lengths=batch.lengths)
            self.labels = batch.labels.long()

    model.train()
    for step in range(arguments.steps + arguments.warmup):
        optimizer.zero_grad(set_to_none=True)
        loss, _ = model(TrainBatch(step))
        loss.sum().backward()
        optimizer.step()
        clock.tick()
    if rank == 0:
        import torchrec

        clock.report(f"torchrec {torchrec.__version__}, torch {torch.__version__}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE", "1"))
    run_rank(train)
