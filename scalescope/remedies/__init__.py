"""Rewrites of a user's source that apply remedies. A rewrite never runs anything.

A rewrite takes a module, a finding and the line that the finding names. It returns the patched module, or the parameter
to change if its value comes from outside the module, or why the code is left alone. It changes only code that it
understands exactly; `scalescope.fixing` tests the effect by running both versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pkgutil import resolve_name

import libcst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import Answer

Rewrite = Callable[[libcst.Module, Finding, Place | None], Answer]

_LOOP, _PERSIST = "awaited_in_loop:rewrite", "persist:rewrite"
_BATCHES, _WINDOW, _COROUTINES = "batches:rewrite", "window:rewrite", "awaited_coroutines:rewrite"
_PASSED_ON, _UNHASHED, _FIRST = "passed_on:rewrite", "unhashed:rewrite", "window:first_completed"
_SCATTER, _DELAYED, _SMALLER, _LARGER = (
    *("scatter:rewrite", "delayed_once:rewrite"),
    *("partitions:smaller", "partitions:larger"),
)
# Code of a cause -> rewrites, in the order in which they are tried
REWRITES: Mapping[str, tuple[str, ...]] = {
    "results-awaited-in-loop": (
        *(_LOOP, _BATCHES, _WINDOW, _PERSIST, _COROUTINES),
        *("left_out:pre_dispatch", _PASSED_ON),
    ),
    "few-tasks-in-flight": (_WINDOW, _LOOP, _BATCHES, "left_out:pre_dispatch"),
    "slow-submission": (_UNHASHED, _SCATTER, "scatter:before_the_loop", _LOOP),
    "recomputation": (_LOOP, _PERSIST, "persist_where_made:rewrite", "pure_calls:rewrite"),
    "client-waits": (_UNHASHED, _LOOP, _SCATTER, _PASSED_ON, "computed_late:rewrite", "left_out:restart"),
    "client-busy": (
        _UNHASHED,
        "meta_given:rewrite",
        "lazy_call:rewrite",
        "workers_awaited:rewrite",
        _PASSED_ON,
        _DELAYED,
        "parallel_open:rewrite",
        "computed_late:rewrite",
    ),
    "large-graph": (_PASSED_ON, _SCATTER, _DELAYED, _LARGER),
    "serialisation-bound": (_PASSED_ON, _SCATTER, _DELAYED),
    "local-scheduler": ("left_out:scheduler", "left_out:backend", "on_the_cluster:rewrite"),
    "nested-client": ("worker_client:rewrite",),
    "too-few-partitions": (_SMALLER, _LOOP),
    "uneven-waves": (_SMALLER,),
    "sequential-graph": ("combined_in_pairs:rewrite",),
    "straggler": ("left_out:wait", _FIRST, _BATCHES, "longest_first:rewrite"),
    "skewed-tasks": ("left_out:wait", _FIRST, _BATCHES, "longest_first:rewrite"),
    "tiny-tasks": (_LARGER, "item_lists:rewrite", "batches:longer"),
    "adaptive-scaling": ("adapt_minimum:rewrite",),
    "event-loop-blocked": ("plain_function:rewrite",),
    "gil-bound": ("cluster_threads:rewrite",),
    "undersubscribed-threads": ("cluster_threads:rewrite",),
    "worker-restriction": ("left_out:workers",),
    "data-locality": ("left_out:workers",),
    "lock-bound": ("unlocked_store:rewrite",),
    "waiting-tasks": ("unlocked_store:rewrite",),
    "cluster-in-each-round": ("cluster_before_loop:rewrite", "cluster_before_loop:kept"),
    "task-overhead": ("cached_load:rewrite",),
}


def rewrites(code: str) -> Iterator[tuple[str, Rewrite]]:
    """The rewrites of a cause with their names."""
    for target in REWRITES.get(code, ()):
        yield target.removesuffix(":rewrite"), resolve_name(f"scalescope.remedies.{target}")
