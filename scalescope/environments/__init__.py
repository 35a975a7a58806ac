"""Software environments: resolved and built by uv, kept in a cache."""

from scalescope.environments.build import Built, ensure, resolve
from scalescope.environments.cache import Cached, Pruned, list_cached, prune
from scalescope.environments.lock_file import from_lock
from scalescope.environments.package_index import PackageRelease, changelog, releases

__all__ = [
    "Built",
    "Cached",
    "PackageRelease",
    "Pruned",
    "changelog",
    "ensure",
    "from_lock",
    "list_cached",
    "prune",
    "releases",
    "resolve",
]
