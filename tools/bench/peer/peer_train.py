"""Step time, losses and memory of plain PyTorch training on CPU + gloo. Prints one JSON line.

  python peer_train.py --strategy single --model mlp_small --t0 $(date +%s.%N)
  torchrun --standalone --nproc-per-node 2 peer_train.py --strategy fsdp2 --model mlp_big --t0 $(date +%s.%N)

--batch is the global batch, split evenly over the ranks. --t0: when the launch began (seconds since the epoch).
--model none measures the memory of a rank that has its process group and no model. Its vmhwm_loaded_mb is the peak after it has
wrapped mlp_small (25 kB) and made an optimizer as well, which load much of PyTorch that is not there before.
//tools/bench:train_step takes the same flags, and //tools/bench:compare runs both.
"""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist

import peer_model as pm

ap = argparse.ArgumentParser()
ap.add_argument("--strategy", choices=["single", "ddp", "fsdp1", "fsdp2"], required=True)
ap.add_argument("--model", choices=["mlp_small", "mlp_big", "transformer", "none"], required=True)
ap.add_argument("--batch", type=int, default=32)
ap.add_argument("--steps", type=int, default=20)
ap.add_argument("--warmup", type=int, default=3)
ap.add_argument("--optim", choices=["sgd", "adamw"], default="sgd")
ap.add_argument("--fused", action="store_true", help="the optimizer's fused kernel")
ap.add_argument("--losses", type=int, default=1 << 30, help="print at most this many losses")
ap.add_argument("--t0", type=float, default=None)
args = ap.parse_args()

t_start = time.time()
rank, world = pm.init_gloo() if args.strategy != "single" else (0, 1)
torch.set_num_threads(1)
anon_before = pm.memory()["rssanon_mb"]


def leave():
    """Ends this rank when all is measured and printed: now and then PyTorch 2.11 aborts a rank of Gloo that ends in the usual way."""
    if args.strategy != "single":
        dist.barrier()
    os._exit(0)


def report_empty():
    mem, mems = pm.memory(), [None] * world
    wrapped = pm.shard(pm.build("mlp_small"), args.strategy)
    pm.optimizer(wrapped, args.optim, args.fused)
    mem["vmhwm_loaded_mb"] = pm.memory()["vmhwm_mb"]
    mem["rssanon_before_model_mb"] = anon_before
    if world > 1:
        dist.all_gather_object(mems, mem)
    else:
        mems = [mem]
    if rank == 0:
        print(json.dumps({"bench": "train", "strategy": args.strategy, "model": "none", "world": world, "mem": mems}), flush=True)


if args.model == "none":
    report_empty()
    leave()

model = pm.shard(pm.build(args.model), args.strategy)
opt = pm.optimizer(model, args.optim, args.fused)
per = args.batch // world
batches = [pm.batch(args.model, b, rank * per, (rank + 1) * per) for b in range(4)]

times, losses, first = [], [], None
for step in range(args.steps):
    x, y = batches[step % 4]
    t = time.perf_counter()
    loss = pm.loss_fn(args.model, model(x), y)
    loss.backward()
    opt.step()
    opt.zero_grad()
    times.append(time.perf_counter() - t)
    losses.append(loss.detach())
    if first is None:
        first = time.time()
mem = pm.memory()
mem["rssanon_before_model_mb"] = anon_before
mem["param_bytes"] = pm.local_bytes(model.parameters())
mem["opt_bytes"] = pm.local_bytes(v for st in opt.state.values() for v in st.values() if torch.is_tensor(v))

losses = torch.stack(losses).double()
mems = [None] * world
if world > 1:
    dist.all_reduce(losses)
    losses /= world
    slowest = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    times = slowest.tolist()
    dist.all_gather_object(mems, mem)
else:
    mems = [mem]
if rank == 0:
    timed = times[args.warmup :]
    out = {
        "bench": "train", "strategy": args.strategy, "model": args.model, "world": world, "batch": args.batch,
        "optim": args.optim, "fused": args.fused, "steps": args.steps,
        "step_ms": {"median": statistics.median(timed) * 1e3, "min": min(timed) * 1e3, "max": max(timed) * 1e3},
        "samples_per_s": args.batch / statistics.median(timed),
        "losses": ["%.9g" % v for v in losses.tolist()[: args.losses]], "last_loss": "%.9g" % losses[-1].item(),
        "launch_to_script_s": args.t0 and round(t_start - args.t0, 3),
        "launch_to_first_step_s": args.t0 and round(first - args.t0, 3), "mem": mems,
    }
    print(json.dumps(out), flush=True)
leave()
