import importlib.util
import os
import sys
import tempfile
import unittest
import zipfile

spec = importlib.util.spec_from_file_location("fetch", "third_party/pypi/fetch.py")
fetch = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fetch)


class FetchTest(unittest.TestCase):
    def setUp(self):
        self.saved = fetch.find_pip, fetch.download, sys.executable
        self.root = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.target = os.path.join(self.root, "cache", "thing-1")
        self.downloads = []
        fetch.find_pip = lambda: ["python3", "-m", "pip"]
        fetch.download = self.download

    def tearDown(self):
        fetch.find_pip, fetch.download, sys.executable = self.saved

    def download(self, pip, requirement, sha256, arch, folder):
        self.downloads.append((requirement, sha256, arch))
        wheel = os.path.join(folder, "thing.whl")
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in ["thing/include/deep/a.h", "thing/lib/libthing.so", "thing/tool.py", "thing-1.dist-info/LICENSE.txt"]:
                archive.writestr(name, name)
        return [wheel]

    def files(self):
        return sorted(
            os.path.relpath(os.path.join(folder, name), self.target)
            for folder, _, names in os.walk(self.target) for name in names
        )

    def test_what_is_asked_for_and_licences_are_kept(self):
        fetch.main(self.target, "x86_64", ["thing/include/*"], ["thing==1=abc"])
        self.assertEqual(self.downloads, [("thing==1", "abc", "x86_64")])
        self.assertEqual(self.files(), ["thing-1.dist-info/LICENSE.txt", "thing/include/deep/a.h"])

    def test_what_is_there_is_not_fetched_again(self):
        fetch.main(self.target, "x86_64", ["*"], ["thing==1=abc"])
        fetch.main(self.target, "x86_64", ["*"], ["thing==1=abc"])
        self.assertEqual(len(self.downloads), 1)

    def test_a_fetch_that_fails_leaves_nothing_behind(self):
        def fail_at_the_second(pip, requirement, *rest):
            if requirement == "other==2":
                sys.exit("cannot fetch other==2")
            return self.download(pip, requirement, *rest)

        fetch.download = fail_at_the_second
        with self.assertRaisesRegex(SystemExit, "cannot fetch other==2"):
            fetch.main(self.target, "x86_64", ["*"], ["thing==1=abc", "other==2=def"])
        self.assertEqual(os.listdir(os.path.dirname(self.target)), [])

    def test_a_missing_pip_is_said_in_one_line(self):
        fetch.find_pip = self.saved[0]
        sys.executable = "/no/python3"
        run = fetch.subprocess.run

        def no_python(*arguments, **options):
            raise FileNotFoundError

        fetch.subprocess.run = no_python
        try:
            with self.assertRaisesRegex(SystemExit, "^pip is missing, for /no/python3 .*apt-get install python3-pip$"):
                fetch.find_pip()
        finally:
            fetch.subprocess.run = run


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
