"""Tests of this repository."""

def torch_test(name, deps = [], copts = [], size = "small", **kwargs):
    """A GoogleTest program that may include all of LibTorch; with clang its headers come precompiled.

    Args:
      name: of the target.
      deps: what it tests; GoogleTest's main and LibTorch are added.
      copts: further compiler flags.
      size: as for cc_test; small ends after a minute.
      **kwargs: as for cc_test.
    """
    native.cc_test(
        name = name,
        size = size,
        copts = copts + select({
            "//tools/build:clang": [
                "-include-pch",
                "$(execpath //tools/build:torch_test_pch)",
                "-MMD",  # Note [No dependencies of a precompiled header]
            ],
            "//conditions:default": [],
        }),
        deps = deps + [
            "@com_google_googletest//:gtest_main",
            "@libtorch",
        ] + select({
            "//tools/build:clang": ["//tools/build:torch_test_pch"],
            "//conditions:default": [],
        }) + select({
            "//tools/build:tsan": ["//tools/build:tsan_suppressions"],
            "//conditions:default": [],
        }),
        **kwargs
    )
