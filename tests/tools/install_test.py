"""tools/bazel and tools/install_packages on machines of every kind, made of a PATH with stand-ins for the system's programs."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

NEEDED = ["bash", "cat", "env", "mktemp", "rm", "sed", "tail", "readlink"]


class InstallTest(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.bin = os.path.join(self.root, "bin")
        self.tools = os.path.join(self.root, "tools")
        os.mkdir(self.bin)
        os.mkdir(self.tools)
        for name in NEEDED:
            os.symlink(shutil.which(name), os.path.join(self.bin, name))
        for name in ["bazel", "install_packages"]:
            shutil.copy(os.path.realpath("tools/" + name), self.tools)
        self.packages("here " + self.root)

    def packages(self, *lines):
        with open(os.path.join(self.tools, "packages.txt"), "w") as f:
            f.write("# a comment\n" + "".join(line + "\n" for line in lines))

    def program(self, name, script):
        path = os.path.join(self.bin, name)
        with open(path, "w") as f:
            f.write("#!%s\n%s\n" % (shutil.which("bash"), script))
        os.chmod(path, 0o755)
        return path

    def log(self):
        path = os.path.join(self.root, "log")
        return open(path).read().splitlines() if os.path.exists(path) else []

    def record(self, name, then=""):
        return self.program(name, 'echo "%s $*" >>%s/log\n%s' % (name, self.root, then))

    def run_tool(self, name, *arguments, **variables):
        command = [shutil.which("bash"), os.path.join(self.tools, name)] + list(arguments)
        environment = dict({"PATH": self.bin, "HOME": self.root}, **variables)
        return subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
            timeout=30)

    def test_with_all_there_it_only_becomes_the_bazel_that_the_launcher_names(self):
        self.record("apt-get")
        real = self.record("bazel-4", "exit 7")
        result = self.run_tool("bazel", "build", "//a b", BAZEL_REAL=real)
        self.assertEqual((result.returncode, result.stdout + result.stderr), (7, ""))
        self.assertEqual(self.log(), ["bazel-4 build //a b"])

    def test_run_directly_it_finds_the_launcher_and_not_itself(self):
        os.symlink(os.path.join(self.tools, "bazel"), os.path.join(self.bin, "bazel"))
        self.record("bazelisk")
        self.assertEqual(self.run_tool("bazel", "info").returncode, 0)
        self.assertEqual(self.log(), ["bazelisk info"])

    def test_a_launcher_that_names_a_missing_bazel_is_not_believed(self):
        self.record("bazel")
        self.run_tool("bazel", "info", BAZEL_REAL="/no/such/bazel")
        self.assertEqual(self.log(), ["bazel info"])

    def test_what_is_missing_is_named_installed_by_apt_and_then_bazel_runs(self):
        self.packages("here " + self.root, "bazel-bootstrap /usr/bin/bazel", "lib-dev " + self.root + "/absent-*.h")
        self.record("apt-get", 'case "$*" in *install*) printf "#!%s\\necho ran\\n" "$BASH" >%s/bazel; "$CHMOD" +x %s/bazel;; esac' % (
            "%s", self.bin, self.bin))
        self.record("sudo", 'while [[ $1 == -* ]]; do shift; done; exec "$@"')
        result = self.run_tool("bazel", "info", CHMOD=shutil.which("chmod"))
        self.assertEqual((result.returncode, result.stdout), (0, "ran\n"), result.stderr)
        self.assertIn("installing by apt: bazel-bootstrap lib-dev\n", result.stderr)
        calls = [line for line in self.log() if line.startswith("apt-get")]
        self.assertEqual(len(calls), 2)
        self.assertTrue(calls[0].endswith(" update"))
        self.assertTrue(calls[1].endswith(" bazel-bootstrap lib-dev"))

    def test_without_apt_one_line_lists_the_packages(self):
        result = self.run_tool("install_packages", "lld", "libcsv-dev")
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(len(result.stderr.splitlines()), 1)
        self.assertIn("lld libcsv-dev", result.stderr)

    def test_apt_failing_shows_its_words_and_the_command(self):
        self.record("apt-get", 'case "$*" in *install*) echo "E: Unable to locate package lld"; exit 100;; esac')
        self.record("sudo", 'while [[ $1 == -* ]]; do shift; done; exec "$@"')
        result = self.run_tool("install_packages", "lld")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("E: Unable to locate package lld", result.stderr)
        self.assertIn("apt-get install lld", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
