"""Software environments: resolved and built by uv, kept in a cache."""

from scalescope.environments.cache import Built, ensure, resolve
from scalescope.environments.index import Release, changelog, releases
from scalescope.environments.lock import from_lock
from scalescope.environments.shelf import Cached, Pruned, list_cached, prune

__all__ = [
    "Built",
    "Cached",
    "Pruned",
    "Release",
    "changelog",
    "ensure",
    "from_lock",
    "list_cached",
    "prune",
    "releases",
    "resolve",
]
