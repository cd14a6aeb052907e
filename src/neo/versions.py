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


def kernel_versions() -> dict[str, str]:
    """Return the versions of torch and of the FBGEMM distribution, which have to fit each other."""
    return {name: v for name, v in installed_versions().items() if name == "torch" or name.startswith("fbgemm")}
