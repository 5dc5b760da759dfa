"""How the two sides of the comparison are started, and what comes back. Standard library only."""
import collections
import json
import os
import signal
import subprocess

# The work of one line of the comparison: `strategy` is ddp or fsdp (FULL_SHARD), `ranks` on this machine, each with one thread.
Case = collections.namedtuple("Case", "model strategy optim ranks")

# Enough steps for a steady median, few enough for some seconds.
FLAGS = {
    "mlp_small": ["--batch", "32", "--steps", "300", "--warmup", "20", "--losses", "10"],
    "mlp_big": ["--batch", "64", "--steps", "16", "--warmup", "3"],
    "transformer": ["--batch", "4", "--steps", "12", "--warmup", "3"],
}
# PyTorch's own fully sharded strategies; we are compared with the better one.
PEERS = {"ddp": ["ddp"], "fsdp": ["fsdp1", "fsdp2"]}


class RunFailed(Exception):
    pass


def case_name(case):
    return "%s/%s/%s" % (case.model, case.strategy, case.optim)


def environment(extra=None):
    variables = dict(os.environ, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    for name in ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]:
        variables.pop(name, None)  # of a job that this program may be part of
    variables.update(extra or {})
    return variables


def work(case, steps=None):
    flags = list(FLAGS[case.model])
    if steps:
        flags[flags.index("--steps") + 1] = str(steps)
        flags[flags.index("--warmup") + 1] = str(min(3, steps - 1))
    return ["--model", case.model, "--optim", case.optim] + flags


class Ours:
    """//tools/bench:train_step."""

    name = "ours"

    def __init__(self, program):
        self.program = program

    def command(self, case, steps=None):
        return self._launch(case) + work(case, steps) + ["--fused"]

    def empty_command(self, case):
        return self._launch(case) + ["--model", "none", "--optim", case.optim, "--fused"]

    def _launch(self, case):
        return [self.program, "--nproc_per_node", str(case.ranks), "--strategy", case.strategy]


class Peer:
    """peer/peer_train.py with one of PyTorch's strategies, started by torchrun."""

    def __init__(self, python, program, strategy):
        self.python, self.program, self.name = python, program, strategy

    def command(self, case, steps=None):
        return self._launch(case) + work(case, steps) + ["--fused"]

    def empty_command(self, case):
        return self._launch(case) + ["--model", "none", "--optim", case.optim, "--fused"]

    def _launch(self, case):
        launcher = [self.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(case.ranks)]
        return launcher + [self.program, "--strategy", self.name]


def last_lines(text, count=40):
    return "\n".join("    " + line for line in text.strip().splitlines()[-count:])


def run(command, timeout, extra_environment=None):
    """Runs a program with all its ranks and returns the JSON line it printed; RunFailed has its last lines."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(extra_environment), start_new_session=True,
        )
    except OSError as error:
        raise RunFailed("cannot start %s: %s" % (command[0], error))
    try:
        output, errors = process.communicate(timeout=timeout)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)  # ranks are in the session of their launcher
        output, errors = process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise RunFailed("not done after %g s\n%s" % (timeout, last_lines(errors)))
        raise
    if process.returncode:
        raise RunFailed("exit status %d\n%s" % (process.returncode, last_lines(errors or output)))
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except ValueError:
                break
    raise RunFailed("no JSON line in its output\n%s" % last_lines(output + errors))
