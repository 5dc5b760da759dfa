"""Libraries that the operating system's packages install, as Bazel repositories."""

def _flags(ctx, module, option):
    result = ctx.execute(["pkg-config", option, module])
    if result.return_code:
        return None
    return [flag for flag in result.stdout.strip().split(" ") if flag]

def _target(name, module, headers, linkopts):
    return """
cc_library(
    name = "{name}",
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
""".format(name = name, linkopts = repr(linkopts))

def _impl(ctx):
    for header in ctx.attr.headers:
        if not ctx.path("/usr/include/" + header).exists:
            fail("{} is not installed (/usr/include/{} is missing); run tools/bazel once, or: apt-get install {}".format(
                ctx.attr.package,
                header,
                ctx.attr.package,
            ))
    packages = {}
    for label, module in ctx.attr.targets.items():
        linkopts = []
        if module.startswith("-l"):
            linkopts = module.split(" ")
        elif module:
            linkopts = _flags(ctx, module, "--libs")
            if linkopts == None:
                fail("pkg-config does not know {}; run tools/bazel once, or: apt-get install {} pkg-config".format(module, ctx.attr.package))
        package, _, name = label.rpartition(":")
        packages[package] = packages.get(package, "") + _target(name, module, [], linkopts)
    for package, content in packages.items():
        ctx.file((package + "/" if package else "") + "BUILD", "# Made by //third_party/system:repo.bzl.\n" + content)

system_repository = repository_rule(
    implementation = _impl,
    local = True,
    doc = "A library from the system's include and library folders, under the labels that its own Bazel build would give it.",
    attrs = {
        "headers": attr.string_list(doc = "Files under /usr/include that prove that the library is installed."),
        "package": attr.string(mandatory = True, doc = "The Debian package that installs it."),
        "targets": attr.string_dict(doc = "package:name of each target, to a pkg-config module, linker flags, or nothing for headers alone."),
    },
)
