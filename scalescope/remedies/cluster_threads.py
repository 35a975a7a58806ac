"""Sets a local cluster's workers and threads: processes if threads wait for the GIL, more threads if tasks wait."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from scalescope.model.fields import Scalar
from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import (
    Answer,
    Edits,
    NotHere,
    Patched,
    Refused,
    Source,
    alike,
    answer,
    argument,
    becomes,
    called,
    dotted,
    is_main,
    written,
)

WORKERS, THREADS = "workers", "threads_per_worker"  # names of axes
NO_NUMBER = "the finding names no number of workers or threads"
OPTIONS = {WORKERS: "n_workers", THREADS: "threads_per_worker"}


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    change = {
        OPTIONS[name]: value for name, value in (finding.gain.change if finding.gain else {}).items() if name in OPTIONS
    }
    if not change and finding.code != "gil-bound":
        return NotHere(NO_NUMBER)

    def edit(source: Source, call: cst.Call) -> Patched:
        options = _in_dictionary if called(call) == "DaskTaskRunner" else _in_call
        edits = options(source, call, change)
        told = ", ".join(f"{name}={value}" for name, value in change.items())
        return Patched(source.edited(edits).module, f"the cluster has {told or 'processes'}")

    source = Source(module)
    calls = [each for each in source.all(cst.Call) if _makes(each)]
    near = source.nearest(calls, place) or (calls if len(calls) == 1 else [])
    return answer(edit, source, near, "no `LocalCluster(...)` or `Client(n_workers=...)` was found at that line")


def _makes(call: cst.Call) -> bool:
    """Whether the call makes a cluster on this machine."""
    match called(call):
        case "LocalCluster":
            return True
        case "Client":
            return argument(call, "n_workers") is not None or not call.args
        case "DaskTaskRunner":
            return not (call.args and argument(call, "cluster_kwargs") is None)
    return False


def _in_call(source: Source, call: cst.Call, change: Mapping[str, Scalar]) -> Edits:
    if any(each.star or each.keyword is None for each in call.args):
        raise Refused("the cluster's options are not all written out in the call")
    args, edits = [*call.args], Edits()
    processes = argument(call, "processes")
    threads = argument(call, "threads_per_worker")
    inside = processes is not None and dotted(processes.value) == "False"
    if not change and not (inside and threads is not None and source.text(threads.value) == "1"):
        raise Refused(f"{NO_NUMBER}, and the call does not have `processes=False, threads_per_worker=1`")
    if processes is not None and inside and (not change or "n_workers" in change):
        _check_guarded(source)
        args.remove(processes)
    for name, value in change.items():
        new, known = _expression(source, name, value), argument(call, name)
        if known is None:
            args.append(new)
        elif isinstance(known.value, cst.Name):
            edits |= {each: becomes(new.value) for each in written(source, alike(source, known))}
        else:
            args[args.index(known)] = known.with_changes(value=new.value)
    # Keep a comma at the end only if there was one.
    ends = call.args[-1].comma if call.args else cst.MaybeSentinel.DEFAULT
    spaced = _plain(call.args[0].comma) if len(call.args) > 1 else _plain(cst.MaybeSentinel.DEFAULT)
    is_longer = len(args) > len(call.args) - (processes is not None and processes not in args)
    between = [
        each.with_changes(comma=spaced)
        if (is_longer and each is args[-2]) or isinstance(each.comma, cst.MaybeSentinel)
        else each
        for each in args[:-1]
    ]
    edits[call] = becomes(call.with_changes(args=[*between, args[-1].with_changes(comma=ends)]))
    return edits


def _in_dictionary(source: Source, call: cst.Call, change: Mapping[str, Scalar]) -> Edits:
    """Edits of `DaskTaskRunner(cluster_kwargs={...})`; without `cluster_kwargs`, `LocalCluster`'s defaults apply."""
    given = argument(call, "cluster_kwargs")
    if not change:
        raise Refused(NO_NUMBER)
    if given is None:
        added = _expression(source, "cluster_kwargs", repr(dict(change)).replace("'", '"'))
        return {call: becomes(call.with_changes(args=[added]))}
    if not isinstance(given.value, cst.Dict):
        raise Refused("the cluster's options are not all written out in the call")
    known = {
        source.text(each.key).strip("\"'"): each for each in given.value.elements if isinstance(each, cst.DictElement)
    }
    if len(known) != len(given.value.elements):
        raise Refused("the cluster's options are not all written out in the call")
    if "n_workers" in change and "processes" in known and dotted(known["processes"].value) == "False":
        _check_guarded(source)
        del known["processes"]
    ends = given.value.elements[-1].comma if given.value.elements else cst.MaybeSentinel.DEFAULT
    for name, value in change.items():
        new = _expression(source, name, value).value
        key = source.expression(f'"{name}"')
        known[name] = known[name].with_changes(value=new) if name in known else cst.DictElement(key, new)
    *most, last = known.values()
    most = [
        each if each in given.value.elements[:-1] else each.with_changes(comma=cst.MaybeSentinel.DEFAULT)
        for each in most
    ]
    return {given.value: becomes(given.value.with_changes(elements=[*most, last.with_changes(comma=ends)]))}


def _expression(source: Source, name: str, value: Scalar) -> cst.Arg:
    call = source.expression(f"f({name}={value})")
    assert isinstance(call, cst.Call)
    return call.args[0]


def _plain(comma: cst.Comma | cst.MaybeSentinel) -> cst.Comma:
    """The comma with the white space after it, but no comment; if the code has no comma, a comma and a space."""
    if not isinstance(comma, cst.Comma):
        return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    space = comma.whitespace_after
    if isinstance(space, cst.ParenthesizedWhitespace):
        line = space.first_line.with_changes(comment=None, whitespace=cst.SimpleWhitespace(""))
        space = space.with_changes(first_line=line)
    return comma.with_changes(whitespace_after=space)


def _check_guarded(source: Source) -> None:
    if not any(map(is_main, source.all(cst.If))):
        raise Refused('worker processes import the script: put what it does below `if __name__ == "__main__":`')
