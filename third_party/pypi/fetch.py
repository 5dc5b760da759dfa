"""Downloads wheels with pip, checks their hashes and unpacks what a C++ program needs of them into a folder.

usage: fetch.py FOLDER ARCHITECTURE [--keep=PATTERN ...] SPEC=SHA256 ...

PATTERN says which files of the wheels are unpacked; licences always are. FOLDER appears whole or not at all: it is filled under
another name and renamed, so that an interrupted or a concurrent run never leaves half of it. Standard library only.
"""
import fnmatch
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile


def find_pip():
    """The command that runs pip: of the Python that runs this, or of the system's when that one has none."""
    for python in [sys.executable, "/usr/bin/python3"]:
        try:
            probe = subprocess.run([python, "-m", "pip", "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except OSError:
            continue
        if probe.returncode == 0:
            return [python, "-m", "pip"]
    sys.exit("pip is missing, for %s and for /usr/bin/python3; run tools/bazel once, or: apt-get install python3-pip" % sys.executable)


def download(pip, spec, sha256, arch, folder):
    requirement = os.path.join(folder, "requirement.txt")
    with open(requirement, "w") as f:
        f.write("%s --hash=sha256:%s\n" % (spec, sha256))
    command = pip + ["download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    command += ["--implementation", "cp", "--python-version", "3.11", "--abi", "cp311", "--abi", "none"]
    for glibc in range(28, 16, -1):
        command += ["--platform", "manylinux_2_%d_%s" % (glibc, arch)]
    command += ["--platform", "manylinux2014_" + arch, "--require-hashes", "-r", requirement, "-d", folder]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    if result.returncode:
        sys.exit("cannot fetch %s for %s with pip (%s):\n%s" % (spec, arch, pip[0], result.stdout))
    return [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".whl")]


def unpack(wheel, folder, patterns):
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            licence = ".dist-info/" in info.filename and "LICENSE" in info.filename.upper()
            if licence or any(fnmatch.fnmatchcase(info.filename, pattern) for pattern in patterns):
                archive.extract(info, folder)


def main(target, arch, patterns, pins):
    if os.path.isdir(target):
        return
    pip = find_pip()
    parent = os.path.dirname(target)
    os.makedirs(parent, exist_ok=True)
    work = tempfile.mkdtemp(prefix=os.path.basename(target) + ".", dir=parent)
    try:
        tree = os.path.join(work, "tree")
        os.mkdir(tree)
        for pin in pins:
            spec, _, sha256 = pin.rpartition("=")
            wheels = tempfile.mkdtemp(dir=work)
            for wheel in download(pip, spec, sha256, arch, wheels):
                unpack(wheel, tree, patterns)
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
    KEEP = "--keep="
    main(
        sys.argv[1],
        sys.argv[2],
        [argument[len(KEEP):] for argument in sys.argv[3:] if argument.startswith(KEEP)] or ["*"],
        [argument for argument in sys.argv[3:] if not argument.startswith(KEEP)],
    )
