#!/usr/bin/env python3
"""One of several processes that train a workload with PyTorch's DistributedDataParallel on gloo.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29501 ddp.py WORKLOAD FILE SECONDS THREADS

FILE is what `retrograd bench WORKLOAD --dump FILE` wrote; every process takes its share of the batch.
Rank 0 prints one JSON object: the losses before the first three steps, the SHA-256 of the weights after
ten, which are written beside FILE, and the median and the least time of a step.
"""

import hashlib
import json
import os
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from problem import Problem
from with_torch import torch_problem


# Steps after which weights are compared.
STEPS = 10


def main():
    workload, path, seconds, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    problem = Problem(workload, path)
    optimizer = problem.optimizer
    model, (whole,), loss = torch_problem(problem)
    model.load_state_dict({name: torch.tensor(t) for name, t in problem.params.items()})
    samples = len(whole)
    part = slice(samples * rank // size, samples * (rank + 1) // size)
    own = whole[part].contiguous()
    # DDP gives the mean of the processes' gradients: of a sum of squares it is a share.
    sums = workload.startswith("logic-")
    shared = DistributedDataParallel(model)
    kind = torch.optim.AdamW if sums else torch.optim.Adam
    adam = kind(model.parameters(), optimizer["lr"], optimizer["betas"], optimizer["eps"], optimizer["weight_decay"])

    def step():
        adam.zero_grad(set_to_none=True)
        value = loss(shared(own), part)
        (value * size if sums else value).backward()
        if sums:
            torch.nn.utils.clip_grad_value_(model.parameters(), 100.0)
        adam.step()
        return value.detach()

    losses = []
    for _ in range(3):
        value = step() if sums else step() / size
        dist.all_reduce(value)
        losses.append(float(value))
    for _ in range(STEPS - 3):
        step()
    weights = np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])
    begin = time.perf_counter()
    for _ in range(3):
        step()
    # Rank 0's clock decides for all.
    count = torch.tensor([max(5, int(float(seconds) / max((time.perf_counter() - begin) / 3, 1e-9)))])
    dist.broadcast(count, 0)
    times = []
    for _ in range(int(count)):
        before = time.perf_counter_ns()
        step()
        times.append(time.perf_counter_ns() - before)
    times.sort()
    if rank == 0:
        weights.tofile(f"{path}.ddp-{size}")
        print(
            json.dumps(
                {
                    "version": torch.__version__,
                    "processes": size,
                    "losses": losses,
                    "weights_sha256": hashlib.sha256(weights.tobytes()).hexdigest(),
                    "step_ns": times[len(times) // 2],
                    "min_ns": times[0],
                }
            )
        )
    dist.barrier()
    dist.destroy_process_group()
    # A thread of the store may still be there when the interpreter ends, and would abort the process.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
