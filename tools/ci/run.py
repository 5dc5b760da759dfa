"""Runs every check of the repository and counts the results: a Bazel test target is one, any other step is one.

usage: run.py [STEP...]
Without arguments all steps run, in order. The last line is "N passed, N failed". Standard library only.
"""
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.parse

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BAZEL = os.path.join(ROOT, "tools", "bazel")
DOWNSTREAM = os.path.join(ROOT, "tests", "downstream")
STEP_TIMEOUT_S = 45 * 60
LOG_TAIL_LINES = 80
BAZEL_OPTIONS = ["--keep_going", "--color=no", "--curses=no", "--show_progress_rate_limit=60", "--test_output=summary"]

# Name, folder, command. A "bazel test" is counted by target. The second run of the tests takes the first's results from Bazel's
# cache, and a target counts once.
STEPS = [
    ("format", ROOT, [os.path.join(ROOT, "tools", "format"), "--check"]),
    ("test", ROOT, [BAZEL, "test", "//..."]),
    ("test-ci", ROOT, [BAZEL, "test", "--config=ci", "//..."]),
    ("dependencies", ROOT, [os.path.join(ROOT, "tools", "check_dependencies")]),
    ("nccl", ROOT, [BAZEL, "build", "--config=nccl", "//..."]),
    ("downstream", DOWNSTREAM, [BAZEL, "test", "//..."]),
]


class Results:
    """Names of what passed and what failed; a name that ever failed has failed."""

    def __init__(self):
        self.passed = set()
        self.failed = {}  # name: paths of its logs

    def add(self, name, passed, logs=()):
        if passed and name not in self.failed:
            self.passed.add(name)
        elif not passed:
            self.passed.discard(name)
            self.failed.setdefault(name, []).extend(logs)

    def summary(self):
        return "%d passed, %d failed" % (len(self.passed), len(self.failed))

    def exit_code(self):
        return 0 if self.passed and not self.failed else 1


def log_path(uri):
    return urllib.parse.unquote(urllib.parse.urlparse(uri).path)


def read_events(lines):
    """Tells, from Bazel's build events, what became of each target.

    Returns:
      (tests, broken): `tests` maps the label of each test that ran, or that could not be built, to (passed, paths of failed
      logs); `broken` is the set of labels that are no tests and could not be built. A test that tags keep from running is in neither.
    """
    test_labels, tests, broken = set(), {}, set()
    for line in lines:
        event = json.loads(line)
        identity = event.get("id", {})
        if "targetConfigured" in identity and "testSize" in event.get("configured", {}):
            test_labels.add(identity["targetConfigured"]["label"])
        elif "targetCompleted" in identity and not event.get("completed", {}).get("success"):
            broken.add(identity["targetCompleted"]["label"])
        elif "testSummary" in identity:
            summary = event.get("testSummary", {})
            logs = [log_path(log["uri"]) for log in summary.get("failed", []) if "uri" in log]
            tests[identity["testSummary"]["label"]] = (summary.get("overallStatus") == "PASSED", logs)
    for label in broken:
        if label in test_labels or label in tests:
            tests[label] = (False, tests.get(label, (False, []))[1])
    return tests, broken - set(tests)


def run(folder, command):
    """Runs a command with its output passed on; returns its exit status, 124 when it took too long."""
    try:
        return subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, timeout=STEP_TIMEOUT_S).returncode
    except subprocess.TimeoutExpired:
        print("took more than %d s: %s" % (STEP_TIMEOUT_S, " ".join(command)))
        return 124
    except OSError as error:
        print(error)
        return 127


def run_bazel_tests(name, folder, command, results):
    with tempfile.TemporaryDirectory() as scratch:
        events = os.path.join(scratch, "events.json")
        # A test that fails ends the command with 3; every other failure must leave a mark of its own in the results.
        status = run(folder, command[:2] + BAZEL_OPTIONS + ["--build_event_json_file=" + events] + command[2:])
        tests, broken = {}, set()
        if os.path.exists(events):
            with open(events) as lines:
                tests, broken = read_events(lines)
    prefix = "" if folder == ROOT else os.path.relpath(folder, ROOT) + " "
    for label, (passed, logs) in sorted(tests.items()):
        results.add(prefix + label, passed, logs)
    for label in sorted(broken):
        results.add(prefix + label, False)
    explained = broken or any(not passed for passed, _ in tests.values())
    if not tests or (status and not explained):
        results.add("%s: %s ended with status %d after %d tests" % (name, " ".join(command), status, len(tests)), False)


def run_step(name, folder, command, results):
    print("\n=== %s: %s" % (name, " ".join(command)), flush=True)
    start = time.monotonic()
    if command[:2] == [BAZEL, "test"]:
        run_bazel_tests(name, folder, command, results)
    else:
        if command[0] == BAZEL:
            command = command[:2] + BAZEL_OPTIONS + command[2:]
        results.add(name, run(folder, command) == 0)
    print("=== %s took %.0f s" % (name, time.monotonic() - start), flush=True)


def report(results):
    for name, logs in sorted(results.failed.items()):
        print("\n=== FAILED: %s" % name)
        for path in logs:
            print("--- the end of %s" % path)
            try:
                with open(path, errors="replace") as log:
                    print("".join(log.readlines()[-LOG_TAIL_LINES:]).rstrip())
            except OSError as error:
                print(error)
    print("\n" + results.summary(), flush=True)


def main(names):
    unknown = set(names) - {name for name, _, _ in STEPS}
    if unknown:
        sys.exit("no such step: %s; there are %s" % (", ".join(sorted(unknown)), ", ".join(name for name, _, _ in STEPS)))
    results = Results()
    for name, folder, command in STEPS:
        if not names or name in names:
            run_step(name, folder, command, results)
    report(results)
    return results.exit_code()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
