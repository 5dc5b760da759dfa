"""PyTorch for Python, for tests that compare with it. Fetched only when a test tagged `interop` is built."""

load("//third_party/pypi:wheels.bzl", "WHEEL_ENVIRON", "cache_folder")
load(":packages.bzl", "CUDA_PACKAGES", "PACKAGES", "VERSION")

_PROGRAM = """#!/usr/bin/env bash
# {doc}
export PYTHONPATH={site}${{PYTHONPATH:+:$PYTHONPATH}} PYTHONDONTWRITEBYTECODE=1
export LD_LIBRARY_PATH={toolkit}/lib64${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}
exec {python} {arguments}"$@"
"""

def _impl(ctx):
    toolkit = ctx.os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    cuda = [spec for library, spec in CUDA_PACKAGES.items() if not ctx.path("{}/lib64/{}".format(toolkit, library)).exists]
    ctx.report_progress("installing PyTorch {} for Python with pip".format(VERSION))
    result = ctx.execute(
        ["python3", ctx.path(ctx.attr._install), cache_folder(ctx), "torch-python-" + VERSION] + PACKAGES + cuda,
        timeout = 3600,
    )
    if result.return_code:
        fail("PyTorch {} for Python: {}".format(VERSION, result.stderr.strip()))
    python, site = result.stdout.strip().split("\n")
    for name, arguments, doc in [
        ("python", "", "python3 with PyTorch and what it needs."),
        ("torchrun", "-m torch.distributed.run ", "PyTorch's launcher."),
    ]:
        ctx.file(name, _PROGRAM.format(doc = doc, site = site, toolkit = toolkit, python = python, arguments = arguments), executable = True)
    ctx.file("BUILD", """exports_files(["python", "torchrun"])\n""")

torch_python_repository = repository_rule(
    implementation = _impl,
    environ = ["CUDA_HOME"] + WHEEL_ENVIRON,
    doc = "@torch_python//:python and @torch_python//:torchrun, programs that need nothing else from the machine.",
    attrs = {
        "_install": attr.label(default = "//third_party/torch_python:install.py"),
    },
)
