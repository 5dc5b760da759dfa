"""The system libraries, under the names that their own Bazel builds use, so that a workspace with those can take them instead."""

SYSTEM_LIBRARIES = {
    "com_github_gflags_gflags": {
        "package": "libgflags-dev",
        "headers": ["gflags/gflags.h"],
        "targets": {":gflags": "gflags"},
    },
    "com_github_google_benchmark": {
        "package": "libbenchmark-dev",
        "headers": ["benchmark/benchmark.h"],
        "targets": {":benchmark": "benchmark"},
    },
    "com_github_google_glog": {
        "package": "libgoogle-glog-dev",
        "headers": ["glog/logging.h"],
        "targets": {":glog": "libglog"},
    },
    "com_github_nlohmann_json": {
        "package": "nlohmann-json3-dev",
        "headers": ["nlohmann/json.hpp"],
        "targets": {":json": ""},
    },
    "com_google_absl": {
        "package": "libabsl-dev",
        "headers": ["absl/status/statusor.h"],
        "targets": {
            "absl/cleanup:cleanup": "",
            "absl/status:status": "absl_status",
            "absl/status:statusor": "absl_statusor",
            "absl/strings:str_format": "absl_str_format",
            "absl/strings:strings": "absl_strings",
        },
    },
    "com_google_googletest": {
        "package": "libgmock-dev",
        "headers": [
            "gmock/gmock.h",
            "gtest/gtest.h",
        ],
        "targets": {
            ":gtest": "gmock",
            ":gtest_main": "gmock_main",
        },
    },
    "gloo": {
        # Headers alone: libtorch_cpu.so holds the library, and a second copy of it must never be linked.
        "package": "libgloo-dev",
        "headers": ["gloo/context.h"],
        "targets": {":headers": ""},
    },
    "libcsv": {
        "package": "libcsv-dev",
        "headers": ["csv.h"],
        "targets": {":csv": "-lcsv"},
    },
}
