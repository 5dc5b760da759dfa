"""NCCL, headers and library, from the wheel that LibTorch's own packages name."""

load("//third_party/pypi:wheels.bzl", "WHEEL_ATTRS", "WHEEL_ENVIRON", "fetch_wheels")

_WHEELS = [{
    "spec": "nvidia-nccl-cu13==2.28.9",
    "sha256": {"x86_64": "e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42"},
}]

def _impl(ctx):
    folder = fetch_wheels(
        ctx,
        "NCCL 2.28.9",
        _WHEELS,
        ["nvidia/nccl/*"],
        "declare a repository named nccl, with a target //:nccl, before medfusion_deps()",
    )
    ctx.symlink(folder + "/nvidia", "nvidia")
    ctx.symlink(ctx.attr._build, "BUILD")

nccl_repository = repository_rule(
    implementation = _impl,
    environ = WHEEL_ENVIRON,
    doc = "@nccl//:nccl. Fetched only when a target is built with --config=nccl.",
    attrs = dict(
        WHEEL_ATTRS,
        _build = attr.label(default = "//third_party/nccl:nccl.BUILD"),
    ),
)
