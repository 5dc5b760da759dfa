#!/usr/bin/env python3
"""Compares //tools/bench:train_step with PyTorch on this machine: step time and peak memory, medians and their ratios.

  tools/bazel run --config=opt //tools/bench:compare -- --python=PYTHON_WITH_TORCH

For each model, strategy, optimizer and number of ranks our program and PyTorch's take turns, --repeats times, with the same
initial values, batches and optimizer (fused on both sides), one thread per rank, over Gloo. FULL_SHARD is compared with the
better of FSDP1 and FSDP2, for time and for memory on its own. docs/benchmarks.md says what is measured, and how.

The exit status is 0 when every run ended well and the losses of both sides agree within 1e-5. Standard library only.
"""
import argparse
import json
import os
import subprocess
import sys

import compare_programs
import compare_results

HERE = os.path.dirname(os.path.realpath(__file__))
# With this, the allocator of the C library gives a freed block of a megabyte or more back to the system at once.
PEER_MALLOC = {"MALLOC_MMAP_THRESHOLD_": "1048576"}


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", default="tools/bench/train_step", help="the program train_step; bazel run provides it")
    parser.add_argument("--peer", default=os.path.join(HERE, "peer", "peer_train.py"), help="PyTorch's side")
    parser.add_argument("--python", default=os.environ.get("MEDFUSION_PEER_PYTHON", "python3"),
                        help="a Python with PyTorch and NumPy (default: $MEDFUSION_PEER_PYTHON, else python3)")
    parser.add_argument("--models", nargs="+", default=list(compare_programs.FLAGS), choices=list(compare_programs.FLAGS))
    parser.add_argument("--strategies", nargs="+", default=list(compare_programs.PEERS), choices=list(compare_programs.PEERS))
    parser.add_argument("--optims", nargs="+", default=["sgd", "adamw"], choices=["sgd", "adamw"],
                        help="sgd is for ddp alone: PyTorch 2.11 has no fused SGD for FSDP2")
    parser.add_argument("--ranks", nargs="+", type=int, default=[2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, help="instead of each model's own number")
    parser.add_argument("--timeout", type=float, default=300, help="seconds that one run may take")
    parser.add_argument("--peer_malloc", action=argparse.BooleanOptionalAction, default=True,
                        help="also compare memory with MALLOC_MMAP_THRESHOLD_=1048576 for the peer, one run each")
    parser.add_argument("--json", action="store_true", help="print lines with name, ranks, ours, peer and ratio")
    options = parser.parse_args(arguments)
    if options.repeats < 1 or min(options.ranks) < 1 or (options.steps is not None and options.steps < 2):
        parser.error("--repeats and --ranks are at least 1, --steps at least 2")
    return options


def check_programs(options):
    if not (os.path.isfile(options.ours) and os.access(options.ours, os.X_OK)):
        sys.exit("--ours=%s is no program; run this with bazel run //tools/bench:compare, or name a built train_step" % options.ours)
    probe = [options.python, "-c", "import numpy, torch; print(torch.__version__)"]
    try:
        result = subprocess.run(probe, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.exit("--python=%s cannot be run: %s" % (options.python, error))
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or ["exit status %d" % result.returncode])[-1]
        sys.exit("--python=%s has no PyTorch to compare with (%s); name a Python that has torch and numpy, or set "
                 "MEDFUSION_PEER_PYTHON" % (options.python, reason))
    print("peer: PyTorch %s (%s)" % (result.stdout.strip(), options.python), file=sys.stderr)


def cases(options):
    for ranks in options.ranks:
        for strategy in options.strategies:
            for model in options.models:
                for optim in options.optims:
                    if strategy == "ddp" or optim != "sgd":
                        yield compare_programs.Case(model, strategy, optim, ranks)


class Comparison:
    def __init__(self, options):
        self.options = options
        self.faults = []
        self.empty = {}  # (side, strategy, optim, ranks, malloc) -> result of a rank without a model

    def fault(self, case, side, text):
        self.faults.append("%s, %d ranks, %s: %s" % (compare_programs.case_name(case), case.ranks, side, text))
        print("FAILED " + self.faults[-1], file=sys.stderr)

    def run(self, case, side, command, extra=None):
        """The result, or None after a failure, which has then been noted."""
        try:
            return compare_programs.run(command, self.options.timeout, extra)
        except compare_programs.RunFailed as error:
            self.fault(case, side.name, str(error))
            return None

    def empty_of(self, case, side, extra=None):
        key = (side.name, case.strategy, case.optim, case.ranks, bool(extra))
        if key not in self.empty:
            self.empty[key] = self.run(case, side, side.empty_command(case), extra)
        return self.empty[key]

    def extra_memory(self, case, side, results, extra=None, key="vmhwm_mb"):
        empty = self.empty_of(case, side, extra)
        return compare_results.median_extra(results, empty, key) if empty else None

    def compare(self, case):
        """The lines of one case; fewer, when runs failed."""
        options = self.options
        ours = compare_programs.Ours(options.ours)
        peers = [compare_programs.Peer(options.python, options.peer, s) for s in compare_programs.PEERS[case.strategy]]
        results = {side.name: [] for side in [ours] + peers}
        alive = [ours] + peers
        for repeat in range(options.repeats):
            for side in list(alive):
                result = self.run(case, side, side.command(case, options.steps))
                if result is None:
                    alive.remove(side)  # it would only fail again
                    continue
                results[side.name].append(result)
                print("%s, %d ranks, %s, run %d: %.3f ms, peak %.0f MB" % (
                    compare_programs.case_name(case), case.ranks, side.name, repeat + 1,
                    compare_results.step_ms(result), compare_results.peak_mb(result)), file=sys.stderr)
        peers = [p for p in peers if p in alive]
        if ours not in alive or not peers:
            return []
        self.check_losses(case, results[ours.name][0], {p.name: results[p.name][0] for p in peers})
        return self.lines(case, ours, peers, results)

    def check_losses(self, case, ours, peers):
        for name, result in peers.items():
            wrong = compare_results.disagreement(ours, result)
            if wrong:
                self.fault(case, name, "losses disagree: " + wrong)

    def lines(self, case, ours, peers, results):
        name = compare_programs.case_name(case)
        steps = {p.name: compare_results.median_step(results[p.name]) for p in peers}
        found = [compare_results.line(name + "/step", case.ranks, "ms", compare_results.median_step(results[ours.name]), steps)]
        own = self.extra_memory(case, ours, results[ours.name])
        memory = {p.name: self.extra_memory(case, p, results[p.name]) for p in peers}
        loaded = {p.name: self.extra_memory(case, p, results[p.name], key="vmhwm_loaded_mb") for p in peers}
        low = {}
        if self.options.peer_malloc:
            for peer in peers:
                result = self.run(case, peer, peer.command(case, self.options.steps), PEER_MALLOC)
                low[peer.name] = self.extra_memory(case, peer, [result], PEER_MALLOC) if result else None
        for suffix, figures in [("/memory", memory), ("/memory_loaded", loaded), ("/memory_peer_malloc", low)]:
            figures = {k: v for k, v in figures.items() if v is not None}
            if own is not None and figures:
                found.append(compare_results.line(name + suffix, case.ranks, "MB", own, figures))
        return found


def main(arguments):
    options = parse(arguments)
    check_programs(options)
    comparison, lines = Comparison(options), []
    for case in cases(options):
        for line in comparison.compare(case):
            lines.append(line)
            if options.json:
                print(json.dumps(line), flush=True)
    if not options.json:
        print(compare_results.table(lines))
    for fault in comparison.faults:
        print("FAILED " + fault, file=sys.stderr)
    return 1 if comparison.faults or not lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
