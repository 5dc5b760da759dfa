"""Models, deterministic init and data shared by the peer baselines (plain PyTorch); the twin of tools/bench/train_step/models.h.

Everything is filled from one integer hash, so another program can rebuild it bit for bit:

  fmix32(h): h ^= h>>16; h *= 0x85EBCA6B; h ^= h>>13; h *= 0xC2B2AE35; h ^= h>>16   (uint32, wraps)
  H(s, i)  = fmix32(i + 0x9E3779B9 * (s + 1))                                        (uint32, wraps)
  U(s, i)  = float32((H(s, i) >> 8) - 2**23) * 2**-23     exact in float32, in [-1, 1)

Parameters: parameter number p (0-based, in named_parameters() order, listed below), element i of its
row-major storage. Weights (out, in):  w = float32(1/sqrt(in)) * U(p, i)   -- one float32 product.
Embeddings: w = 0.02f * U(p, i).  Biases: 0.  LayerNorm weight 1, bias 0.

Data of batch number b (step t uses b = t % 4), stream s = 1000 + 2*b for x and s + 1 for y;
sample n of the *global* batch (rank r of W takes n in [r*B/W, (r+1)*B/W)):
  mlp_small:   x[n][f] = U(s, n*30+f);    y[n] = 1 if x[n][0] + x[n][1] > 0 else 0;  cross entropy, mean
  mlp_big:     x[n][f] = U(s, n*2048+f);  y[n][f] = U(s+1, n*2048+f);                mean squared error
  transformer: tok[n][t] = H(s, n*129+t) % 8192, t in 0..128; input tok[:128], target tok[1:]; cross entropy

mlp_small: Linear 30-64, ReLU, Linear 64-64, ReLU, Linear 64-2.   Order: w1 b1 w2 b2 w3 b3.
mlp_big:   8 x Linear 2048-2048 with bias, ReLU between (none after the last). Order: w b per layer.
transformer: pre-LN GPT, d=512, 8 heads, 6 blocks, seq 128, vocab 8192, GELU (erf), causal attention,
  no dropout, untied head without bias. Order: tok, pos, per block (ln1.w ln1.b qkv.w qkv.b proj.w
  proj.b ln2.w ln2.b fc.w fc.b out.w out.b), lnf.w lnf.b, head.w.  qkv.w rows: q(512) k(512) v(512).
"""
import math
import os
import resource

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEQ, VOCAB, D, HEADS, BLOCKS = 128, 8192, 512, 8, 6


def hash32(stream, start, count):
    h = np.arange(start, start + count, dtype=np.uint32)
    h += np.uint32((0x9E3779B9 * (stream + 1)) & 0xFFFFFFFF)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xC2B2AE35)
    h ^= h >> np.uint32(16)
    return h


def uniform(stream, start, count):
    k = (hash32(stream, start, count) >> np.uint32(8)).astype(np.int32) - (1 << 23)
    return torch.from_numpy(k.astype(np.float32) * np.float32(2.0**-23))


class Layer(nn.Module):
    def __init__(self, n_in, n_out, relu):
        super().__init__()
        self.lin, self.relu = nn.Linear(n_in, n_out), relu

    def forward(self, x):
        x = self.lin(x)
        return F.relu(x) if self.relu else x


class MLP(nn.Module):
    def __init__(self, dims):
        super().__init__()
        n = len(dims) - 1
        self.layers = nn.ModuleList(Layer(dims[i], dims[i + 1], i + 1 < n) for i in range(n))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.qkv, self.proj = nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.ln2, self.fc, self.out = nn.LayerNorm(D), nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (z.view(b, t, HEADS, D // HEADS).transpose(1, 2) for z in self.qkv(self.ln1(x)).split(D, 2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, D))
        return x + self.out(F.gelu(self.fc(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, D), nn.Embedding(SEQ, D)
        self.layers = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.lnf, self.head = nn.LayerNorm(D), nn.Linear(D, VOCAB, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight
        for layer in self.layers:
            x = layer(x)
        return self.head(self.lnf(x))


@torch.no_grad()
def build(name):
    # Built on meta first so that torch's own random init costs nothing.
    with torch.device("meta"):
        model = {"mlp_small": lambda: MLP([30, 64, 64, 2]), "mlp_big": lambda: MLP([2048] * 9), "transformer": GPT}[name]()
    model = model.to_empty(device="cpu")
    for p, (pname, w) in enumerate(model.named_parameters()):
        leaf = pname.split(".")[-2]
        if pname.endswith("bias"):
            w.zero_()
        elif leaf.startswith("ln"):
            w.fill_(1.0)
        else:
            scale = 0.02 if leaf in ("tok", "pos") else 1.0 / math.sqrt(w.shape[1])
            w.copy_((uniform(p, 0, w.numel()) * torch.tensor(scale, dtype=torch.float32)).view_as(w))
    return model


def batch(name, b, lo, hi):
    """Samples lo..hi-1 of batch b, and the loss function."""
    s, n = 1000 + 2 * b, hi - lo
    if name == "transformer":
        t = torch.from_numpy((hash32(s, lo * (SEQ + 1), n * (SEQ + 1)) % np.uint32(VOCAB)).astype(np.int64))
        t = t.view(n, SEQ + 1)
        return t[:, :-1].contiguous(), t[:, 1:].contiguous().view(-1)
    if name == "mlp_small":
        x = uniform(s, lo * 30, n * 30).view(n, 30)
        return x, (x[:, 0] + x[:, 1] > 0).long()
    return uniform(s, lo * 2048, n * 2048).view(n, 2048), uniform(s + 1, lo * 2048, n * 2048).view(n, 2048)


def loss_fn(name, out, y):
    if name == "mlp_big":
        return F.mse_loss(out, y)
    return F.cross_entropy(out.view(-1, out.shape[-1]), y)


def shard(model, strategy, mesh=None):
    """Wrap for ddp / fsdp1 / fsdp2 on CPU + gloo; one FSDP unit per layer/block, and the root."""
    if strategy == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if strategy == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        # device_id must be given: with none, 2.11 refuses to run where no accelerator is found.
        return FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Layer, Block}), device_id=torch.device("cpu"), use_orig_params=True)
    if strategy == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    return model


def optimizer(model, kind, fused=False):
    kw = {"fused": True} if fused else {}
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **kw)
    return torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, **kw)


def local_bytes(tensors):
    total = 0
    for t in tensors:
        t = t.to_local() if hasattr(t, "to_local") else t
        total += t.numel() * t.element_size()
    return total


def memory():
    """MB of this process: peak RSS, current RSS and its anonymous (heap) part."""
    out = {"maxrss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    with open("/proc/self/status") as f:
        for line in f:
            key = line.split(":")[0]
            if key in ("VmHWM", "VmRSS", "RssAnon"):
                out[key.lower() + "_mb"] = int(line.split()[1]) / 1024
    return {k: round(v, 1) for k, v in out.items()}


def init_gloo():
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def under_torchrun():
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ
