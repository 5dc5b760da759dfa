"""A header compiled once for many tests, where the compiler is clang: LibTorch's headers cost 12 to 20 s a file without it."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")

# Note [Paths in a precompiled header]
# clang stores absolute paths of the headers, and the sandbox that compiled them is gone when the file is used. With PWD=/proc/self/cwd,
# which Bazel sets for C++ compilations, they begin with /proc/self/cwd and mean the reader's own sandbox. Time stamps are left out, so
# that a file from the disk cache serves another clone.
#
# Note [No dependencies of a precompiled header]
# The reader's list of dependencies (-MD) would name all those paths, and Bazel would not know them. Asked by -MMD it names no system
# header, so the header is read as one: included from the empty standard input and found in a system folder. Bazel still knows every
# header as an input, from `deps`.

def _impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features + ["module_maps"],
    )
    context = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps]).compilation_context
    output = ctx.actions.declare_file(ctx.label.name + ".pch")
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = "-",
        output_file = output.path,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts,
        include_directories = context.includes,
        quote_include_directories = context.quote_includes,
        system_include_directories = depset([ctx.file.header.dirname], transitive = [context.system_includes]),
        preprocessor_defines = context.defines,
        use_pic = True,
    )
    arguments = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = variables,
    )
    environment = dict(cc_common.get_environment_variables(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = variables,
    ))
    environment["PWD"] = "/proc/self/cwd"  # See Note [Paths in a precompiled header].
    compiler = cc_common.get_tool_for_action(feature_configuration = features, action_name = CPP_COMPILE_ACTION_NAME)
    flags = ["-x", "c++-header", "-include", ctx.file.header.basename, "-Xclang", "-fno-pch-timestamp", "-fpch-instantiate-templates"]
    ctx.actions.run_shell(
        command = 'exec "$@" </dev/null',
        arguments = [compiler] + flags + arguments,
        env = environment,
        inputs = depset([ctx.file.header], transitive = [context.headers, toolchain.all_files]),
        outputs = [output],
        mnemonic = "CppPrecompileHeader",
        progress_message = "Precompiling " + ctx.file.header.short_path,
    )
    own = cc_common.create_compilation_context(headers = depset([output, ctx.file.header]))
    return [
        DefaultInfo(files = depset([output])),
        cc_common.merge_cc_infos(cc_infos = [CcInfo(compilation_context = own)] + [dep[CcInfo] for dep in ctx.attr.deps]),
    ]

precompiled_header = rule(
    implementation = _impl,
    doc = "Compiles `header` for targets that depend on this one and pass `-include-pch` with its $(execpath).",
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "header": attr.label(allow_single_file = True, mandatory = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
