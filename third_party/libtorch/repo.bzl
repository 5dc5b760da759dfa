"""LibTorch as a Bazel repository: the pinned wheels, or an installation that the user names.

  --repo_env=LIBTORCH_PATH=/opt/libtorch           an unpacked libtorch archive, or a Python environment's torch folder
  --repo_env=MEDFUSION_TORCH_VERSION=2.15.0        another of the pinned versions (versions.bzl)

The wheels are unpacked once, into the user's cache folder, and every workspace links to that.
"""

load(":versions.bzl", "DEFAULT_VERSION", "WHEELS")

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
    arch = ctx.execute(["uname", "-m"]).stdout.strip()
    pins = []
    for wheel in WHEELS[version]:
        if arch in wheel["sha256"]:
            pins.append(wheel["spec"] + "=" + wheel["sha256"][arch])
    if not pins:
        fail("there is no pinned LibTorch {} for {}; name an installation: --repo_env=LIBTORCH_PATH=...".format(version, arch))
    cache = ctx.os.environ.get("XDG_CACHE_HOME") or ctx.os.environ.get("HOME", "/tmp") + "/.cache"
    folder = "{}/medfusion/libtorch-{}-{}-{}".format(cache, version, arch, hash(str(pins)) % 1000000 + 1000000)
    ctx.report_progress("fetching LibTorch {} (530 MB)".format(version))
    result = ctx.execute(["python3", ctx.path(ctx.attr._fetch), folder, arch] + pins, timeout = 3600)
    if result.return_code:
        fail("LibTorch {}: {}".format(version, result.stderr.strip()))
    ctx.symlink(folder + "/torch", "torch")
    ctx.symlink(folder + "/nvidia", "nvidia")

def _impl(ctx):
    folder = ctx.os.environ.get("LIBTORCH_PATH", "")
    if folder:
        _named_installation(ctx, folder)
    else:
        _wheels(ctx, ctx.os.environ.get("MEDFUSION_TORCH_VERSION") or DEFAULT_VERSION)
    ctx.symlink(ctx.attr._build, "BUILD")

libtorch_repository = repository_rule(
    implementation = _impl,
    environ = ["LIBTORCH_PATH", "MEDFUSION_TORCH_VERSION", "XDG_CACHE_HOME", "HOME"],
    doc = "@libtorch//:libtorch, the CPU library with c10d and Gloo, and @libtorch//:cuda, its CUDA half.",
    attrs = {
        "_build": attr.label(default = "//third_party/libtorch:libtorch.BUILD"),
        "_fetch": attr.label(default = "//third_party/libtorch:fetch.py"),
    },
)
