"""The PyTorch that the other interop tests compare with is the one they mean, whole, and able to start ranks."""
import os
import subprocess
import sys
import tempfile
import unittest

import numpy
import safetensors.torch
import torch


class TorchVersionTest(unittest.TestCase):
    def test_version(self):
        self.assertEqual(torch.__version__.split("+")[0], "2.11.0")

    def test_safetensors_and_numpy_work_with_it(self):
        saved = safetensors.torch.save({"a": torch.from_numpy(numpy.arange(3.0))})
        self.assertEqual(safetensors.torch.load(saved)["a"].tolist(), [0.0, 1.0, 2.0])

    def test_torchrun_starts_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "rank.sh")
            with open(program, "w") as f:
                f.write('#!/bin/sh\necho "$WORLD_SIZE" >"%s/$RANK"\n' % folder)
            os.chmod(program, 0o755)
            command = [os.environ["MEDFUSION_TORCHRUN"], "--standalone", "--no-python", "--nproc_per_node=2", program]
            subprocess.run(command, check=True, timeout=120)
            for rank in ["0", "1"]:
                with open(os.path.join(folder, rank)) as f:
                    self.assertEqual(f.read(), "2\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
