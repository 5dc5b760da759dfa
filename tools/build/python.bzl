"""Python programs as tests. Bazel's own py_test wants an interpreter named `python`, which Debian does not install."""

def python_test(name, srcs, args = [], data = [], size = "small", **kwargs):
    """A test that runs `python3 SRCS[0] ARGS...` in the runfiles folder. Standard library only.

    Args:
      name: of the target.
      srcs: the program; further files are there to be imported.
      args: its arguments.
      data: files it reads.
      size: as for sh_test.
      **kwargs: as for sh_test.
    """
    native.sh_test(
        name = name,
        size = size,
        srcs = ["//tools/build:python_test.sh"],
        args = ["$(rootpath {})".format(srcs[0])] + args,
        data = srcs + data,
        **kwargs
    )
