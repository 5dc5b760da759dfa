"""TorchScript modules that Python saved train under FULL_SHARD on 2 ranks in C++, and load back in Python."""
import copy
import os
import subprocess
import sys
import tempfile
import unittest

import torch

TRAIN = os.path.abspath(sys.argv.pop(1))
RANKS, STEPS, BATCH = 2, 6, 8


class ConvTransformer(torch.nn.Module):
    """[batch, 3, time] -> [batch, 2]"""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(3, 16, 3, padding=1, bias=False)  # a batch norm takes a bias away
        self.norm = torch.nn.BatchNorm1d(16)
        self.block = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.head = torch.nn.Linear(16, 2)

    def forward(self, x):
        h = torch.relu(self.norm(self.conv(x))).transpose(1, 2)
        return self.head(self.block(h).mean(1))


class Recurrent(torch.nn.Module):
    """Tokens [batch, time] -> [batch, 2]."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(21, 12)
        self.lstm = torch.nn.LSTM(12, 12, batch_first=True)
        self.norm = torch.nn.LayerNorm(12)
        self.head = torch.nn.Linear(12, 2)

    def forward(self, x):
        h, _ = self.lstm(self.embedding(x))
        return self.head(self.norm(h.mean(1)))


class Data(torch.nn.Module):
    def __init__(self, x, y):
        super().__init__()
        self.register_buffer("x", x)
        self.register_buffer("y", y)

    def forward(self):
        return self.x


def optimizer_for(name, module):
    if name == "sgd":
        return torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    return torch.optim.AdamW(module.parameters(), lr=0.01, weight_decay=0.1)


def train_here(module, x, y, name):
    """Trains on the joined batch; a batch norm sees each rank's rows apart, and keeps the statistics of rank 0's."""
    optimizer = optimizer_for(name, module)
    rows = BATCH // RANKS
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = 0
        for rank in range(RANKS):
            part = slice(rank * rows, (rank + 1) * rows)
            statistics = {k: v.clone() for k, v in module.named_buffers()}
            loss = loss + torch.nn.functional.mse_loss(module(x[step, part]), y[step, part]) / RANKS
            if rank > 0:
                for k, v in module.named_buffers():
                    v.data = statistics[k]
        loss.backward()
        optimizer.step()


class TorchScriptFsdpTest(unittest.TestCase):
    def check(self, script, module, x, optimizer):
        y = torch.randn(STEPS, BATCH, 2, dtype=torch.float64)
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, name) for name in ["module.pt", "data.pt", "out.pt"]]
            script.save(paths[0])
            torch.jit.script(Data(x, y)).save(paths[1])
            command = [os.environ["MEDFUSION_TORCHRUN"], "--standalone", "--no-python", "--nproc_per_node=%d" % RANKS, TRAIN]
            run = subprocess.run(command + paths + [optimizer], timeout=240, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertEqual(run.returncode, 0, run.stdout)
            units = [int(line.split()[1]) for line in run.stdout.splitlines() if line.startswith("units")]
            self.assertGreater(min(units), 1, run.stdout)
            size = os.path.getsize(paths[2])
            trained = torch.jit.load(paths[2])
        self.assertLess(size, 1.5 * sum(p.numel() * 8 for p in module.parameters()) + 100000)
        before = {k: v.clone() for k, v in module.state_dict().items()}
        train_here(module, x, y, optimizer)
        expected, actual = module.state_dict(), trained.state_dict()
        self.assertEqual(list(actual), list(expected))
        for name, value in expected.items():
            self.assertEqual(type(actual[name]), torch.Tensor, name)
            self.assertEqual(actual[name].shape, value.shape, name)
            torch.testing.assert_close(actual[name], value, rtol=1e-10, atol=1e-11, msg=lambda text: name + ": " + text)
        self.assertFalse(all(torch.equal(before[k], v) for k, v in actual.items()))
        self.assertTrue(all(p.requires_grad for p in trained.parameters()))
        # The loaded module runs, in both modes, and trains on; its weights load into the class they came from.
        for m in (trained, module):
            m.eval()
        torch.testing.assert_close(trained(x[0]), module(x[0]), rtol=1e-9, atol=1e-10)
        fresh = type(module)().double()
        fresh.load_state_dict(trained.state_dict())
        trained.train()
        optimizer_for("sgd", trained).zero_grad()
        trained(x[0]).sum().backward()
        self.assertTrue(all(p.grad is not None for p in trained.parameters()))

    def test_scripted_conv_batchnorm_transformer_with_adamw(self):
        torch.manual_seed(0)
        module = ConvTransformer().double()
        x = torch.randn(STEPS, BATCH, 3, 10, dtype=torch.float64)
        self.check(torch.jit.script(copy.deepcopy(module)), module, x, "adamw")

    def test_traced_embedding_lstm_layernorm_with_momentum(self):
        torch.manual_seed(1)
        module = Recurrent().double()
        x = torch.randint(0, 21, (STEPS, BATCH, 7))
        traced = torch.jit.trace(copy.deepcopy(module), x[0, : BATCH // RANKS])
        self.check(traced, module, x, "sgd")


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main(argv=sys.argv[:1])
