"""The names that BUILD files load from rules_cc, as the rules built into Bazel 4: no archive is fetched."""

cc_library = native.cc_library
cc_binary = native.cc_binary
cc_test = native.cc_test
cc_import = native.cc_import
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
cc_proto_library = native.cc_proto_library
cc_flags_supplier = None
compiler_flag = None
