"""The train program gives the same result whoever starts its two ranks: itself, PyTorch's torchrun, Open MPI's mpirun.

usage: launchers_test.py TRAIN_PROGRAM
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

TRAIN = os.path.abspath(sys.argv.pop(1))
FLAGS = ["--epochs=3"]
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")


def run(command):
    """Runs in a folder of its own; returns metrics.json and the lines of history.jsonl without their times."""
    environment = {k: v for k, v in os.environ.items() if k not in LAUNCHER_VARIABLES}
    environment.setdefault("HOME", tempfile.gettempdir())
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
        if result.returncode:
            raise AssertionError("%s ended with %d:\n%s%s" % (" ".join(command), result.returncode, result.stdout, result.stderr))
        output = os.path.join(folder, "train_output")
        with open(os.path.join(output, "metrics.json")) as file:
            metrics = json.load(file)
        with open(os.path.join(output, "history.jsonl")) as file:
            history = [json.loads(line) for line in file]
    for line in history:
        del line["seconds"]
    return metrics, history


class LaunchersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.expected = run([TRAIN, "--nproc_per_node=2"] + FLAGS)

    def test_the_run_is_one_of_two_ranks(self):
        self.assertEqual(self.expected[0]["world_size"], 2)
        self.assertEqual(len(self.expected[1]), 3)

    def test_torchrun_gives_the_same_metrics(self):
        torchrun = os.path.abspath(os.environ["MEDFUSION_TORCHRUN"])
        self.assertEqual(run([torchrun, "--no-python", "--nproc_per_node=2", TRAIN] + FLAGS), self.expected)

    def test_mpirun_gives_the_same_metrics(self):
        mpirun = shutil.which("mpirun", path="/usr/bin:/usr/local/bin:" + os.environ.get("PATH", ""))
        self.assertIsNotNone(mpirun, "mpirun is not installed: tools/install_packages openmpi-bin")
        self.assertEqual(run([mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "2", TRAIN] + FLAGS), self.expected)

    def test_an_error_reaches_torchrun_with_its_text(self):
        torchrun = os.path.abspath(os.environ["MEDFUSION_TORCHRUN"])
        with self.assertRaisesRegex(AssertionError, "missing.csv: cannot be read"):
            run([torchrun, "--no-python", "--nproc_per_node=2", TRAIN, "--data=missing.csv"])


if __name__ == "__main__":
    unittest.main()
