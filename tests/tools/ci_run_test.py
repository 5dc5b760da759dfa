import contextlib
import importlib.util
import io
import json
import os
import sys
import tempfile
import unittest

spec = importlib.util.spec_from_file_location("run", "tools/ci/run.py")
run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run)


def configured(label, test):
    return {"id": {"targetConfigured": {"label": label}}, "configured": {"testSize": "SMALL"} if test else {"targetKind": "x"}}


def completed(label, success):
    return {"id": {"targetCompleted": {"label": label}}, "completed": {"success": True} if success else {}}


def summary(label, status, logs=()):
    failed = [{"uri": "file://" + log} for log in logs]
    return {"id": {"testSummary": {"label": label}}, "testSummary": {"overallStatus": status, "failed": failed}}


def read(*events):
    return run.read_events([json.dumps(event) for event in events])


class ReadEventsTest(unittest.TestCase):
    def test_a_test_passes_only_when_bazel_says_passed(self):
        statuses = ["PASSED", "FAILED", "TIMEOUT", "FLAKY", "NO_STATUS", "INCOMPLETE", "REMOTE_FAILURE"]
        tests, _ = read(*[summary("//:" + status, status) for status in statuses])
        self.assertEqual([label for label, (passed, _) in tests.items() if passed], ["//:PASSED"])
        self.assertEqual(len(tests), len(statuses))

    def test_a_test_that_tags_keep_from_running_is_not_counted(self):
        self.assertEqual(read(configured("//:t", True), completed("//:t", True)), ({}, set()))

    def test_a_test_that_cannot_be_built_has_failed(self):
        tests, broken = read(configured("//:t", True), completed("//:t", False))
        self.assertEqual(tests, {"//:t": (False, [])})
        self.assertEqual(broken, set())

    def test_a_library_that_cannot_be_built_is_broken(self):
        tests, broken = read(configured("//:l", False), completed("//:l", False), completed("//:ok", True))
        self.assertEqual((tests, broken), ({}, {"//:l"}))

    def test_logs_of_failures_are_found(self):
        tests, _ = read(summary("//:t", "FAILED", ["/a%20b/test.log"]))
        self.assertEqual(tests["//:t"], (False, ["/a b/test.log"]))


class ResultsTest(unittest.TestCase):
    def test_a_name_counts_once_and_failure_stays(self):
        results = run.Results()
        for passed in [True, True, False, True]:
            results.add("//:t", passed)
        results.add("//:u", True)
        self.assertEqual(results.summary(), "1 passed, 1 failed")
        self.assertEqual(results.exit_code(), 1)

    def test_nothing_run_is_a_failure(self):
        self.assertEqual(run.Results().summary(), "0 passed, 0 failed")
        self.assertEqual(run.Results().exit_code(), 1)


class StepsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.saved = run.BAZEL, run.STEPS
        run.BAZEL = os.path.join(self.folder, "bazel")

    def tearDown(self):
        run.BAZEL, run.STEPS = self.saved

    def main(self, bazel_script, steps):
        """Runs `steps` with a Bazel that is a shell script; $events is where it is to write events."""
        with open(run.BAZEL, "w") as script:
            script.write('#!/bin/sh\nfor a; do case $a in --build_event_json_file=*) events=${a#*=};; esac; done\n' + bazel_script)
        os.chmod(run.BAZEL, 0o755)
        run.STEPS = steps
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = run.main([])
        return code, output.getvalue().splitlines()

    def events(self, *events):
        return "cat >$events <<'EOF'\n" + "\n".join(json.dumps(event) for event in events) + "\nEOF\n"

    def test_two_runs_of_the_same_test_count_once(self):
        steps = [(name, run.ROOT, [run.BAZEL, "test", "//..."]) for name in ["test", "test-ci"]]
        code, lines = self.main(self.events(summary("//:t", "PASSED")), steps)
        self.assertEqual((code, lines[-1]), (0, "1 passed, 0 failed"))

    def test_bazel_failing_without_a_failed_target_is_a_failure(self):
        steps = [("test", run.ROOT, [run.BAZEL, "test", "//..."])]
        code, lines = self.main(self.events(summary("//:t", "PASSED")) + "exit 1", steps)
        self.assertEqual((code, lines[-1]), (1, "1 passed, 1 failed"))

    def test_a_run_without_events_is_a_failure(self):
        code, lines = self.main("exit 0", [("test", run.ROOT, [run.BAZEL, "test", "//..."])])
        self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed"))

    def test_the_end_of_a_failed_log_is_shown(self):
        log = os.path.join(self.folder, "test.log")
        with open(log, "w") as f:
            f.write("x\n" * 1000 + "expected 1, got 2\n")
        steps = [("test", run.ROOT, [run.BAZEL, "test", "//..."])]
        code, lines = self.main(self.events(summary("//:t", "FAILED", [log])) + "exit 3", steps)
        self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed"))
        self.assertIn("expected 1, got 2", lines)
        self.assertLess(len(lines), 120)

    def test_other_steps_count_by_their_status(self):
        steps = [(name, run.ROOT, [name]) for name in ["true", "false", "/no/such/program"]]
        code, lines = self.main("", steps)
        self.assertEqual((code, lines[-1]), (1, "1 passed, 2 failed"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
