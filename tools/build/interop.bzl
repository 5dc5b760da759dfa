"""Tests against PyTorch for Python. They are tagged "interop" and run with --config=ci (tests/README.md)."""

_PYTHON = "@torch_python//:python"
_TORCHRUN = "@torch_python//:torchrun"

# For a cc_test or torch_test that starts Python itself: give it these, and the tag "interop".
INTEROP_DATA = [
    _PYTHON,
    _TORCHRUN,
]
INTEROP_ENV = {
    "MEDFUSION_PYTHON": "$(rootpath %s)" % _PYTHON,
    "MEDFUSION_TORCHRUN": "$(rootpath %s)" % _TORCHRUN,
}

def interop_test(name, srcs, args = [], data = [], tags = [], size = "medium", **kwargs):
    """A test that runs a Python program with PyTorch, in the runfiles folder.

    The environment names two programs: MEDFUSION_PYTHON, and MEDFUSION_TORCHRUN, PyTorch's launcher.

    Args:
      name: of the target.
      srcs: the program; further files are there to be imported.
      args: its arguments; $(rootpath ...) of what `data` names.
      data: files it reads, programs it starts.
      tags: as for sh_test; "interop" is added.
      size: as for sh_test; medium ends after five minutes.
      **kwargs: as for sh_test.
    """
    native.sh_test(
        name = name,
        size = size,
        srcs = ["//tools/build:interop_test.sh"],
        args = ["$(rootpath %s)" % _PYTHON, "$(rootpath %s)" % _TORCHRUN, "$(rootpath %s)" % srcs[0]] + args,
        data = srcs + data + INTEROP_DATA,
        tags = tags + ["interop"],
        **kwargs
    )
