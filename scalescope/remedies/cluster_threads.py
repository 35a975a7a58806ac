"""Workers and threads of a cluster on this machine: processes where threads share a lock, threads where tasks wait."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from scalescope.model.fields import Scalar
from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import (
    NotHere,
    Patched,
    Refused,
    Source,
    answer,
    argument,
    becomes,
    bound,
    called,
    dotted,
    used,
)

MAKES = ("Client", "LocalCluster")
WORKERS, THREADS = "workers", "threads_per_worker"  # names of axes
OPTIONS = {WORKERS: "n_workers", THREADS: "threads_per_worker"}


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Patched | NotHere:
    change = {name: value for name, value in (finding.gain.change if finding.gain else {}).items() if name in OPTIONS}
    if not change:
        return NotHere("the finding names no number of workers or threads")

    def edit(source: Source, call: cst.Call) -> Patched:
        if any(each.star or each.keyword is None for each in call.args):
            raise Refused("its options are not written out")
        function = source.function(call)
        parameters = bound(function.params) if isinstance(function, cst.FunctionDef) else set()
        if any(used(known.value) & parameters for name in change if (known := argument(call, OPTIONS[name]))):
            raise Refused("the number is a parameter of the function that makes the cluster")
        return _changed(source, call, change)

    source = Source(module)
    calls = [each for each in source.all(cst.Call) if called(each) in MAKES]
    calls = [each for each in calls if called(each) == "LocalCluster" or argument(each, "n_workers") or not each.args]
    near = source.nearest(calls, place) or (calls if len(calls) == 1 else [])
    return answer(edit, source, near, "no `LocalCluster(...)` or `Client(n_workers=...)` stands at that line")


def _changed(source: Source, call: cst.Call, change: Mapping[str, Scalar]) -> Patched:
    args = [*call.args]
    processes = argument(call, "processes")
    if WORKERS in change and processes is not None and dotted(processes.value) == "False":
        if not _is_guarded(source):
            raise Refused('worker processes import the script: put what it does below `if __name__ == "__main__":`')
        args.remove(processes)
    for name, value in change.items():
        option = OPTIONS[name]
        known = next((i for i, each in enumerate(args) if each.keyword and each.keyword.value == option), None)
        new = source.expression(f"f({option}={value})")
        assert isinstance(new, cst.Call)
        if known is None:
            args.append(new.args[0])
        else:
            args[known] = args[known].with_changes(value=new.args[0].value)
    # a comma between two, and none that was not there at the end
    ends = call.args[-1].comma if call.args else cst.MaybeSentinel.DEFAULT
    spaced = _plain(call.args[0].comma) if len(call.args) > 1 else _plain(cst.MaybeSentinel.DEFAULT)
    is_longer = len(args) > len(call.args) - (processes is not None and processes not in args)
    between = [
        each.with_changes(comma=spaced)
        if (is_longer and each is args[-2]) or isinstance(each.comma, cst.MaybeSentinel)
        else each
        for each in args[:-1]
    ]
    edited = source.edited({call: becomes(call.with_changes(args=[*between, args[-1].with_changes(comma=ends)]))})
    told = ", ".join(f"{OPTIONS[name]}={value}" for name, value in change.items())
    return Patched(edited.module, f"the cluster has {told}")


def _plain(comma: cst.Comma | cst.MaybeSentinel) -> cst.Comma:
    """A comma between two arguments as those of the call are, without its comment."""
    if not isinstance(comma, cst.Comma):
        return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    space = comma.whitespace_after
    if isinstance(space, cst.ParenthesizedWhitespace):
        line = space.first_line.with_changes(comment=None, whitespace=cst.SimpleWhitespace(""))
        space = space.with_changes(first_line=line)
    return comma.with_changes(whitespace_after=space)


def _is_guarded(source: Source) -> bool:
    tests = [source.text(each.test) for each in source.all(cst.If)]
    return any(text.startswith("__name__ ==") for text in tests)
