"""Everything MedFusion is built from, in two macros that another workspace can call.

    local_repository(name = "medfusion", path = "...")
    load("@medfusion//:deps.bzl", "medfusion_bazel_deps", "medfusion_deps")
    medfusion_bazel_deps()
    medfusion_deps()

A repository that the calling workspace has declared already, under the same name, is left alone. A
workspace that has one under another name passes `repo_mapping = {"@com_google_absl": "@absl"}` to the
local_repository of medfusion and `omit = ["com_google_absl"]` here.
"""

load("//third_party/cuda:repo.bzl", "cuda_repository")
load("//third_party/libtorch:repo.bzl", "libtorch_repository")
load("//third_party/nccl:repo.bzl", "nccl_repository")
load("//third_party/system:libraries.bzl", "SYSTEM_LIBRARIES")
load("//third_party/system:repo.bzl", "system_repository")
load("//third_party/torch_python:repo.bzl", "torch_python_repository")

def _missing(name, omit):
    return name not in omit and not native.existing_rule(name)

def medfusion_bazel_deps(medfusion_path = ".", omit = []):
    """The repositories that Bazel 4 itself asks for, as Debian packages ship them, so that nothing is downloaded.

    Args:
      medfusion_path: this repository's folder as seen from the calling workspace.
      omit: names of repositories that the caller declares by another way.
    """
    version = native.bazel_version  # empty in Debian's build
    if version and int(version.split(".")[0]) > 6:
        fail("MedFusion is built with Bazel 4 (Debian's bazel-bootstrap, or Bazelisk, which reads .bazeliskrc); this is Bazel " + version)
    for name, path in {
        "bazel_skylib": "/usr/share/bazel/tools/skylib",
        "platforms": "/usr/share/bazel/tools/platforms",
        "remote_coverage_tools": medfusion_path + "/third_party/remote_coverage_tools",
        "rules_cc": medfusion_path + "/third_party/rules_cc",
        "rules_java": "/usr/share/bazel/rules/java",
        "rules_proto": "/usr/share/bazel/rules/proto",
    }.items():
        if _missing(name, omit):
            native.local_repository(name = name, path = path)

def medfusion_deps(omit = []):
    """The libraries that MedFusion's targets link.

    Args:
      omit: names of repositories that the caller declares by another way.
    """
    if _missing("libtorch", omit):
        libtorch_repository(name = "libtorch")

    # These two are looked at only when something is built with --config=nccl.
    if _missing("cuda", omit):
        cuda_repository(name = "cuda")
    if _missing("nccl", omit):
        nccl_repository(name = "nccl")

    # And this one only by tests tagged "interop".
    if _missing("torch_python", omit):
        torch_python_repository(name = "torch_python")
    for name, library in SYSTEM_LIBRARIES.items():
        if _missing(name, omit):
            system_repository(name = name, **library)
