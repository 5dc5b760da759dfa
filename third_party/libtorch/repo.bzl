"""LibTorch as a Bazel repository: the pinned wheels, or an installation that the user names.

  --repo_env=LIBTORCH_PATH=/opt/libtorch           an unpacked libtorch archive, or a Python environment's torch folder
  --repo_env=MEDFUSION_TORCH_VERSION=2.15.0        another of the pinned versions (versions.bzl)

The wheels are unpacked once, into the user's cache folder, and every workspace links to that.
"""

load("//third_party/pypi:wheels.bzl", "WHEEL_ATTRS", "WHEEL_ENVIRON", "fetch_wheels")
load(":versions.bzl", "DEFAULT_VERSION", "WHEELS")

# Of the wheels: headers, libraries, licences. Not: Python sources, tests, executables.
_KEEP = ["torch/include/*", "torch/lib/*", "torch/version.py", "nvidia/*"]

def _named_installation(ctx, folder):
    torch = ctx.path(folder)
    for part in ["include/torch/csrc/distributed/c10d/ProcessGroup.hpp", "lib/libtorch_cpu.so"]:
        if not ctx.path(folder + "/" + part).exists:
            fail("LIBTORCH_PATH={} has no {}: name an unpacked libtorch archive or a Python environment's torch folder".format(folder, part))
    ctx.symlink(torch, "torch")
    nvidia = ctx.path(folder + "/../nvidia")
    if nvidia.exists:
        ctx.symlink(nvidia, "nvidia")

def _wheels(ctx, version):
    if version not in WHEELS:
        fail("MEDFUSION_TORCH_VERSION={} is not one of {}; use LIBTORCH_PATH for another".format(version, ", ".join(sorted(WHEELS.keys()))))
    folder = fetch_wheels(ctx, "LibTorch " + version, WHEELS[version], _KEEP, "name an installation: --repo_env=LIBTORCH_PATH=...")
    ctx.symlink(folder + "/torch", "torch")
    ctx.symlink(folder + "/nvidia", "nvidia")

def _cuda_linkopts(ctx):
    """Flags that let a program find, at its start, the CUDA libraries that lie beside the CUDA half of LibTorch."""
    folders = ["torch/lib"]
    nvidia = ctx.path("nvidia")
    if nvidia.exists:
        folders += ["nvidia/{}/lib".format(entry.basename) for entry in nvidia.readdir()]
    return ["-Wl,-rpath," + str(ctx.path(folder).realpath) for folder in folders if ctx.path(folder).exists]

def _impl(ctx):
    folder = ctx.os.environ.get("LIBTORCH_PATH", "")
    if folder:
        _named_installation(ctx, folder)
    else:
        _wheels(ctx, ctx.os.environ.get("MEDFUSION_TORCH_VERSION") or DEFAULT_VERSION)
    ctx.file("cuda.bzl", "CUDA_LINKOPTS = {}\n".format(repr(_cuda_linkopts(ctx))))
    ctx.symlink(ctx.attr._build, "BUILD")

libtorch_repository = repository_rule(
    implementation = _impl,
    environ = ["LIBTORCH_PATH", "MEDFUSION_TORCH_VERSION"] + WHEEL_ENVIRON,
    doc = "@libtorch//:libtorch, the CPU library with c10d and Gloo, and @libtorch//:cuda, its CUDA half with NCCL.",
    attrs = dict(
        WHEEL_ATTRS,
        _build = attr.label(default = "//third_party/libtorch:libtorch.BUILD"),
    ),
)
