"""CUDA's headers: of the toolkit that CUDA_HOME names, of the one in /usr/local/cuda when its version fits, else from wheels.

The wheels of the mathematical libraries are large (770 MB), but only their headers are kept. No CUDA library is linked: those that
LibTorch was built for are found when a program starts.
"""

load("//third_party/pypi:wheels.bzl", "WHEEL_ATTRS", "WHEEL_ENVIRON", "fetch_wheels")

_DEFAULT_TOOLKIT = "/usr/local/cuda"
_MAJOR_VERSION = "13"  # what the pinned LibTorch is built for

_WHEELS = [
    {
        "spec": "nvidia-cuda-runtime==13.0.96",
        "sha256": {"x86_64": "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548"},
    },
    {
        "spec": "nvidia-cuda-crt==13.0.88",
        "sha256": {"x86_64": "2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4"},
    },
    {
        "spec": "nvidia-cuda-cccl==13.0.85",
        "sha256": {"x86_64": "e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649"},
    },
    {
        "spec": "nvidia-cublas==13.1.0.3",
        "sha256": {"x86_64": "ee8722c1f0145ab246bccb9e452153b5e0515fd094c3678df50b2a0888b8b171"},
    },
    {
        "spec": "nvidia-cusparse==12.6.3.3",
        "sha256": {"x86_64": "2b3c89c88d01ee0e477cb7f82ef60a11a4bcd57b6b87c33f789350b59759360b"},
    },
    {
        "spec": "nvidia-cusolver==12.0.4.66",
        "sha256": {"x86_64": "0a759da5dea5c0ea10fd307de75cdeb59e7ea4fcb8add0924859b944babf1112"},
    },
]

def _major_version(ctx, toolkit):
    header = ctx.path(toolkit + "/include/cuda.h")
    if not header.exists:
        return None
    for line in ctx.read(header).split("\n"):
        if line.startswith("#define CUDA_VERSION "):
            return line.split(" ")[2][:-3]
    return None

def _toolkit(ctx):
    """The toolkit's folder, or None when the headers have to come from wheels."""
    named = ctx.os.environ.get("CUDA_HOME", "")
    if named:
        if not _major_version(ctx, named):
            fail("CUDA_HOME={} has no include/cuda.h: name a CUDA {} toolkit, or unset it to take the headers from wheels".format(named, _MAJOR_VERSION))
        return named
    return _DEFAULT_TOOLKIT if _major_version(ctx, _DEFAULT_TOOLKIT) == _MAJOR_VERSION else None

def _impl(ctx):
    toolkit = _toolkit(ctx)
    if toolkit:
        include = toolkit + "/include"
        linkopts = ["-Wl,-rpath,{}/lib64".format(toolkit)]
    else:
        otherwise = "install a CUDA {} toolkit and name it: --repo_env=CUDA_HOME=...".format(_MAJOR_VERSION)
        include = fetch_wheels(ctx, "CUDA headers 13.0", _WHEELS, ["nvidia/*/include/*"], otherwise) + "/nvidia/cu13/include"
        linkopts = []
    ctx.symlink(include, "include")
    ctx.template("BUILD", ctx.attr._build, {"%{linkopts}": repr(linkopts)})

cuda_repository = repository_rule(
    implementation = _impl,
    environ = ["CUDA_HOME"] + WHEEL_ENVIRON,
    doc = "@cuda//:cuda, headers alone. Looked at only when a target is built with --config=nccl.",
    attrs = dict(
        WHEEL_ATTRS,
        _build = attr.label(default = "//third_party/cuda:cuda.BUILD"),
    ),
)
