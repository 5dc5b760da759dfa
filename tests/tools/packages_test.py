"""Every system library that a build takes must be one that tools/bazel installs, and must be looked for at the same place."""
import sys
import unittest

PACKAGES = {}
with open("tools/packages.txt") as lines:
    for line in lines:
        if line.strip() and not line.startswith("#"):
            name, path = line.split()
            PACKAGES[name] = path

LIBRARIES = [argument.split() for argument in sys.argv[1:]]


class PackagesTest(unittest.TestCase):
    def test_every_library_is_installed_by_the_wrapper(self):
        self.assertTrue(LIBRARIES)
        for package, header in LIBRARIES:
            self.assertEqual(PACKAGES.get(package), header, "tools/packages.txt lacks the line: %s %s" % (package, header))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
