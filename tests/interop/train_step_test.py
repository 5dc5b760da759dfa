"""//tools/bench:train_step computes what tools/bench/peer/peer_train.py does: the losses of both agree, alone, under DDP and FSDP."""
import json
import os
import subprocess
import sys
import unittest

OURS, PEER = [os.path.abspath(path) for path in sys.argv[1:3]]
# Models with the global batch, the steps and the optimizer.
WORK = {"mlp_small": (8, 12, "adamw"), "mlp_big": (4, 3, "sgd"), "transformer": (2, 2, "adamw")}
TOLERANCE = 1e-5


def flags(model, strategy, optim):
    batch, steps, _ = WORK[model]
    return ["--model", model, "--strategy", strategy, "--batch", str(batch), "--steps", str(steps), "--warmup", "1", "--optim", optim,
            "--fused"]


def losses(command):
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    run = subprocess.run(command, timeout=120, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    if run.returncode or len(lines) != 1:
        raise AssertionError("%s: exit status %d\n%s%s" % (" ".join(command), run.returncode, run.stdout, run.stderr))
    return [float(loss) for loss in json.loads(lines[0])["losses"]]


def ours(model, strategy, optim, ranks):
    return losses([OURS] + flags(model, strategy, optim) + (["--nproc_per_node", str(ranks)] if ranks > 1 else []))


def peer(model, strategy, optim, ranks):
    launcher = [os.environ["MEDFUSION_PYTHON"]]
    if ranks > 1:
        launcher = [os.environ["MEDFUSION_TORCHRUN"], "--standalone", "--nproc_per_node", str(ranks)]
    return losses(launcher + [PEER] + flags(model, strategy, optim))


class TrainStepTest(unittest.TestCase):
    def assertAgree(self, actual, expected, what):
        self.assertEqual(len(actual), len(expected), what)
        for step, (a, b) in enumerate(zip(actual, expected)):
            self.assertLessEqual(abs(a - b), TOLERANCE * max(1.0, abs(b)), "%s, step %d: %.9g, the peer has %.9g" % (what, step, a, b))
        self.assertNotEqual(expected[0], expected[-1], what)

    def check(self, model):
        optim = WORK[model][2]
        expected = peer(model, "single", optim, 1)
        for strategy, ranks in [("single", 1), ("ddp", 2), ("fsdp", 2)]:
            self.assertAgree(ours(model, strategy, optim, ranks), expected, "%s, %s" % (model, strategy))

    def test_mlp_small(self):
        self.check("mlp_small")

    def test_mlp_big(self):
        self.check("mlp_big")

    def test_transformer(self):
        self.check("transformer")

    def test_the_peer_s_own_strategies_agree_too(self):
        for strategy, own, optim in [("ddp", "ddp", "sgd"), ("fsdp2", "fsdp", "adamw")]:
            self.assertAgree(ours("mlp_small", own, optim, 2), peer("mlp_small", strategy, optim, 2), strategy)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
