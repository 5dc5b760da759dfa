"""tools/bench/compare.py with fake programs in place of train_step and of a Python with PyTorch."""
import contextlib
import io
import json
import math
import os
import stat
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.abspath("tools/bench"))
import compare
import compare_programs
import compare_results

# Stands for both sides. FAKE is {side: {"ms": [...], "mb": ..., "losses": [...], ...}}; each run takes the next of "ms".
FAKE = r"""#!%s
import json, os, sys, time
argv = sys.argv[1:]
if argv[:1] == ["-c"]:
    print("2.11.0"); sys.exit(0)
with open(os.environ["FAKE_LOG"], "a") as log:
    log.write(json.dumps([argv, os.environ.get("MALLOC_MMAP_THRESHOLD_", "")]) + "\n")
strategy = argv[argv.index("--strategy") + 1]
side = strategy if "torch.distributed.run" in argv else "ours"
fake = json.loads(os.environ["FAKE"])[side]
if argv[argv.index("--model") + 1] == "none":
    print(json.dumps({"mem": [dict({"vmhwm_mb": fake["empty"]}, **fake.get("more", {}))]})); sys.exit(0)
if fake.get("hang"):
    time.sleep(600)
if fake.get("fail"):
    print("the reason", file=sys.stderr); sys.exit(3)
if fake.get("silent"):
    print("no result"); sys.exit(0)
with open(os.environ["FAKE_LOG"]) as log:
    mine = [a for a in map(json.loads, log) if a[0] == argv and not a[1]]
ms = fake["ms"][(len(mine) - 1) %% len(fake["ms"])]
mb = fake["malloc_mb"] if "MALLOC_MMAP_THRESHOLD_" in os.environ else fake["mb"]
print("[W] a warning goes to the same place")
print(json.dumps({"step_ms": {"median": ms}, "mem": [{"vmhwm_mb": mb - 5}, {"vmhwm_mb": mb}],
                  "losses": fake["losses"], "last_loss": fake["losses"][-1]}))
"""

LOSSES = ["0.7", "0.6"]


def side(ms, mb, empty, **more):
    return dict({"ms": ms, "mb": mb, "malloc_mb": mb - 10, "empty": empty, "losses": LOSSES}, **more)


class CompareTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.program = os.path.join(folder.name, "fake")
        self.log = os.path.join(folder.name, "log")
        with open(self.program, "w") as f:
            f.write(FAKE % sys.executable)
        os.chmod(self.program, os.stat(self.program).st_mode | stat.S_IXUSR)

    def compare(self, sides, *arguments):
        """Exit status, JSON lines by name, standard error."""
        os.environ.update(FAKE=json.dumps(sides), FAKE_LOG=self.log)
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            status = compare.main(["--ours", self.program, "--python", self.program, "--peer", "peer_train.py", "--models", "mlp_big",
                                   "--json", *arguments])
        lines = [json.loads(line) for line in output.getvalue().splitlines()]
        return status, {line["name"]: line for line in lines}, errors.getvalue()

    def runs(self):
        with open(self.log) as log:
            return [json.loads(line) for line in log]

    def fsdp(self, **changes):
        sides = {"ours": side([30, 10, 20], 150, 100), "fsdp1": side([50, 40, 60], 400, 250), "fsdp2": side([80], 380, 260)}
        for name, change in changes.items():
            sides[name] = dict(sides[name], **change)
        return self.compare(sides, "--strategies", "fsdp", "--repeats", "3")

    def test_medians_against_the_better_peer_for_time_and_for_memory_apart(self):
        status, lines, errors = self.fsdp()
        self.assertEqual(status, 0, errors)
        step, memory = lines["mlp_big/fsdp/adamw/step"], lines["mlp_big/fsdp/adamw/memory"]
        self.assertEqual((step["ours"], step["peer"], step["ratio"], step["peer_by"], step["ranks"]), (20, 50, 0.4, "fsdp1", 2))
        self.assertEqual((memory["ours"], memory["peer"], memory["peer_by"]), (50, 120, "fsdp2"))
        self.assertEqual(memory["ratio"], round(50 / 120, 4))
        self.assertEqual(step["peers"], {"fsdp1": 50, "fsdp2": 80})
        self.assertEqual(lines["mlp_big/fsdp/adamw/memory_peer_malloc"]["peer"], 110)

    def test_memory_is_compared_above_a_loaded_empty_rank_too(self):
        _, lines, _ = self.fsdp(fsdp2={"more": {"vmhwm_loaded_mb": 300}})
        self.assertEqual(lines["mlp_big/fsdp/adamw/memory"]["peer"], 120)
        loaded = lines["mlp_big/fsdp/adamw/memory_loaded"]
        self.assertEqual((loaded["ours"], loaded["peer"], loaded["peer_by"]), (50, 80, "fsdp2"))

    def test_sides_take_turns_with_the_same_flags(self):
        self.fsdp()
        timed = [argv for argv, malloc in self.runs() if "none" not in argv and not malloc]
        names = [argv[argv.index("--strategy") + 1] for argv in timed]
        self.assertEqual(names, ["fsdp", "fsdp1", "fsdp2"] * 3)
        self.assertEqual(len({tuple(argv[argv.index("--model"):]) for argv in timed}), 1)
        self.assertIn("--fused", timed[0])

    def test_ddp_with_both_optimizers_and_fsdp_with_adamw(self):
        names = [compare_programs.case_name(c) for c in compare.cases(compare.parse(["--models", "mlp_small"]))]
        self.assertEqual(names, ["mlp_small/ddp/sgd", "mlp_small/ddp/adamw", "mlp_small/fsdp/adamw"])

    def test_losses_that_disagree_are_a_failure_that_names_both(self):
        status, lines, errors = self.fsdp(fsdp2={"losses": ["0.7", "0.60002"]})
        self.assertEqual(status, 1)
        self.assertIn("mlp_big/fsdp/adamw, 2 ranks, fsdp2: losses disagree: loss 1 is 0.6, the peer's is 0.60002", errors)
        self.assertIn("mlp_big/fsdp/adamw/step", lines)

    def test_a_failed_peer_is_named_with_its_last_lines_and_the_other_still_compared(self):
        status, lines, errors = self.fsdp(fsdp1={"fail": True})
        self.assertEqual(status, 1)
        self.assertIn("FAILED mlp_big/fsdp/adamw, 2 ranks, fsdp1: exit status 3\n    the reason", errors)
        self.assertEqual(lines["mlp_big/fsdp/adamw/step"]["peer_by"], "fsdp2")

    def test_a_failure_of_ours_leaves_no_line(self):
        for change in [{"fail": True}, {"silent": True}]:
            status, lines, errors = self.fsdp(ours=change)
            self.assertEqual((status, lines), (1, {}))
            self.assertIn("2 ranks, ours: ", errors)

    def test_a_run_that_hangs_is_ended_with_all_its_processes(self):
        os.environ.update(FAKE=json.dumps({"ours": side([1], 1, 1, hang=True)}), FAKE_LOG=self.log)
        with self.assertRaisesRegex(compare_programs.RunFailed, "not done after 0.5 s"):
            compare_programs.run([self.program, "--strategy", "ddp", "--model", "mlp_big"], 0.5)

    def test_a_python_without_torch_is_a_clear_error(self):
        python = self.program + "_without_torch"
        with open(python, "w") as f:
            f.write("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'torch'\" >&2\nexit 1\n")
        os.chmod(python, 0o700)
        for name, text in [(python, "No module named 'torch'.*MEDFUSION_PEER_PYTHON"), ("/no/such/python", "cannot be run")]:
            with self.assertRaisesRegex(SystemExit, text):
                compare.main(["--ours", self.program, "--python", name])

    def test_a_nan_does_not_agree(self):
        good, bad = {"losses": ["0.5"], "last_loss": "0.5"}, {"losses": ["nan"], "last_loss": "nan"}
        self.assertIsNone(compare_results.disagreement(good, good))
        self.assertIn("loss 0", compare_results.disagreement(bad, good))
        self.assertIn("loss 0", compare_results.disagreement(bad, bad))

    def test_no_ratio_to_nothing(self):
        self.assertIsNone(compare_results.line("x", 2, "MB", 1.0, {"ddp": 0.0})["ratio"])
        table = compare_results.table([compare_results.line("x", 2, "MB", 1.0, {"ddp": 0.0})])
        self.assertRegex(table, r"x +2 +MB +1.00 +0.00 +- +ddp")
        self.assertTrue(math.isfinite(compare_results.line("x", 2, "MB", 1.0, {"ddp": 2.0})["ratio"]))


if __name__ == "__main__":
    unittest.main()
