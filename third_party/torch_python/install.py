"""Installs pinned packages with pip into a folder of their own, for the Python that runs this, or the system's if that has no pip.

usage: install.py PARENT NAME REQUIREMENT...

Prints two lines: the interpreter, and the folder, PARENT/NAME-<Python's version>-<a number>. The folder appears whole or not at all.
Standard library only.
"""
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile


def find_python():
    """An interpreter with pip, and its version."""
    code = "import sys, pip; print(sys.executable); print('%d.%d' % sys.version_info[:2])"
    for python in [sys.executable, "/usr/bin/python3"]:
        try:
            probe = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True)
        except OSError:
            continue
        if probe.returncode == 0:
            return probe.stdout.splitlines()
    sys.exit("pip is missing, for %s and for /usr/bin/python3; run tools/bazel once, or: apt-get install python3-pip" % sys.executable)


def install(python, folder, requirements):
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    command += ["--no-compile", "--root-user-action=ignore", "--target", folder] + requirements
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    if result.returncode:
        sys.exit("cannot install %s with pip (%s):\n%s" % (requirements[0], python, result.stdout))


def main(parent, name, requirements):
    python, version = find_python()
    number = hashlib.sha256(repr(requirements).encode()).hexdigest()[:8]
    target = os.path.join(parent, "%s-%s-%s" % (name, version, number))
    if not os.path.isdir(target):
        os.makedirs(parent, exist_ok=True)
        work = tempfile.mkdtemp(prefix=os.path.basename(target) + ".", dir=parent)
        try:
            install(python, os.path.join(work, "tree"), requirements)
            try:
                os.rename(os.path.join(work, "tree"), target)
            except OSError:
                if not os.path.isdir(target):  # else: another run was quicker
                    raise
        finally:
            shutil.rmtree(work, ignore_errors=True)
    print(python)
    print(target)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
