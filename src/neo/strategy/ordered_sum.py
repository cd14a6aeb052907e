"""Dense gradients summed in the order of the ranks, on the CPU.

gloo's all-reduce adds the ranks' values in an order that depends on where an element lies in the buffer, and DDP lays
its buffers out anew after the first step of a process. So the first step after a resume would round otherwise than the
same step of a run that was not interrupted. With two ranks a sum has one order only.
"""

import torch
import torch.distributed as dist
from torch import Tensor


def sum_in_rank_order(
    group: dist.ProcessGroup,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # missing in torch's stubs
) -> torch.futures.Future[Tensor]:
    """Average one bucket over the ranks; a communication hook for DDP.

    It sends what a ring all-reduce sends: each rank adds up its share of the elements and gives it to the others.
    """
    values = bucket.buffer()
    world_size = dist.get_world_size(group)
    share = -(-values.numel() // world_size)
    padded = values.new_zeros(world_size * share)
    torch.div(values, world_size, out=padded[: values.numel()])
    received = torch.empty_like(padded)
    dist.all_to_all_single(received, padded, group=group)
    parts = received.view(world_size, share)
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    dist.all_gather_into_tensor(padded, total, group=group)
    values.copy_(padded[: values.numel()])
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(values)
    return done
