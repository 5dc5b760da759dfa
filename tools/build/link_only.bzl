"""A library to be linked and not to be included."""

def _impl(ctx):
    return [CcInfo(linking_context = ctx.attr.dep[CcInfo].linking_context)]

link_only = rule(
    implementation = _impl,
    doc = """Links `dep` into programs without its headers, include folders and defines.

For a library that registers itself: those who depend on it are compiled as without it, so that no flag of a backend changes them.
""",
    attrs = {
        "dep": attr.label(mandatory = True, providers = [CcInfo]),
    },
    provides = [CcInfo],
)
