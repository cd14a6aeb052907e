"""The installed versions of the packages that decide about results."""

from importlib import metadata

_PACKAGES = ("neo-zionex", "torch", "lightning", "fbgemm-gpu", "fbgemm-gpu-cpu", "hydra-core", "pyarrow", "numpy")


def installed_versions() -> dict[str, str]:
    """Return the version of each package that is installed; imports none of them."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
