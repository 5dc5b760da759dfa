"""Wheels from PyPI as a source of headers and libraries, for repository rules."""

# A rule that calls fetch_wheels has these attributes and these variables in `environ`.
WHEEL_ATTRS = {
    "_fetch": attr.label(default = "//third_party/pypi:fetch.py"),
}
WHEEL_ENVIRON = ["XDG_CACHE_HOME", "HOME"]

def cache_folder(ctx):
    """The folder, of this user and shared by all workspaces, where what was fetched is kept."""
    cache = ctx.os.environ.get("XDG_CACHE_HOME") or ctx.os.environ.get("HOME", "/tmp") + "/.cache"
    return cache + "/medfusion"

def architecture(ctx):
    """The processor, as wheels name it: x86_64, aarch64."""
    return ctx.execute(["uname", "-m"]).stdout.strip()

def fetch_wheels(ctx, title, wheels, keep, otherwise):
    """Fetches wheels once per user and machine.

    Args:
      ctx: the repository context.
      title: what is fetched, "LibTorch 2.11.0", for messages and the folder's name.
      wheels: dicts of "spec", a requirement with its version, and "sha256", a dict from processor to hash; a wheel without a hash
        for this processor is left out.
      keep: patterns of the files that are unpacked.
      otherwise: what to do on a processor for which nothing is pinned, for the message.

    Returns:
      The folder where the wheels lie unpacked, as a string.
    """
    arch = architecture(ctx)
    pins = [wheel["spec"] + "=" + wheel["sha256"][arch] for wheel in wheels if arch in wheel["sha256"]]
    if not pins:
        fail("there is no pinned {} for {}; {}".format(title, arch, otherwise))
    folder = "{}/{}-{}-{}".format(
        cache_folder(ctx),
        title.lower().replace(" ", "-"),
        arch,
        hash(str(pins + keep)) % 1000000 + 1000000,
    )
    ctx.report_progress("fetching {} with pip".format(title))
    arguments = [folder, arch] + ["--keep=" + pattern for pattern in keep] + pins
    result = ctx.execute(["python3", ctx.path(ctx.attr._fetch)] + arguments, timeout = 3600)
    if result.return_code:
        fail("{}: {}".format(title, result.stderr.strip()))
    return folder
