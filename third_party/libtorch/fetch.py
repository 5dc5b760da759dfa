"""Downloads wheels with pip, checks their hashes and unpacks what a C++ program needs of them into a folder.

usage: fetch.py FOLDER ARCHITECTURE SPEC=SHA256 ...

FOLDER appears whole or not at all: it is filled under another name and renamed, so that an interrupted or a
concurrent run never leaves half of it. Standard library only.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

# Of a wheel: headers, libraries, licences. Not: Python sources, tests, executables.
KEPT = ("torch/include/", "torch/lib/", "torch/version.py", "nvidia/")


def download(spec, sha256, arch, folder):
    requirement = os.path.join(folder, "requirement.txt")
    with open(requirement, "w") as f:
        f.write("%s --hash=sha256:%s\n" % (spec, sha256))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    command += ["--implementation", "cp", "--python-version", "3.11", "--abi", "cp311", "--abi", "none"]
    for glibc in range(28, 16, -1):
        command += ["--platform", "manylinux_2_%d_%s" % (glibc, arch)]
    command += ["--platform", "manylinux2014_" + arch, "--require-hashes", "-r", requirement, "-d", folder]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    if result.returncode:
        sys.exit("cannot fetch %s for %s with pip (%s):\n%s" % (spec, arch, sys.executable, result.stdout))
    return [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".whl")]


def unpack(wheel, folder):
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            licence = ".dist-info/" in info.filename and "LICENSE" in info.filename.upper()
            if info.filename.startswith(KEPT) or licence:
                archive.extract(info, folder)


def main(target, arch, pins):
    if os.path.isdir(target):
        return
    parent = os.path.dirname(target)
    os.makedirs(parent, exist_ok=True)
    work = tempfile.mkdtemp(prefix=os.path.basename(target) + ".", dir=parent)
    try:
        tree = os.path.join(work, "tree")
        os.mkdir(tree)
        for pin in pins:
            spec, _, sha256 = pin.rpartition("=")
            wheels = tempfile.mkdtemp(dir=work)
            for wheel in download(spec, sha256, arch, wheels):
                unpack(wheel, tree)
            shutil.rmtree(wheels)
        try:
            os.rename(tree, target)
        except OSError:
            if not os.path.isdir(target):  # else: another run was quicker
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
