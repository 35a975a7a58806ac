"""Replaces `get_client` in a task that waits for its own tasks by `worker_client`, which frees the thread meanwhile."""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import Answer, Patched, Refused, Source, answer, becomes, called


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    lines = [each for each in source.all(cst.SimpleStatementLine) if _client(each)]
    within = [each for each in lines if isinstance(source.function(each), cst.FunctionDef)]
    near = [each for each in within if source.is_at(source.function(each), place)] or within * (len(within) == 1)
    return answer(_within, source, near, "no task that calls `get_client` was found near that line")


def _within(source: Source, line: cst.SimpleStatementLine) -> Patched:
    block = cst.ensure_type(source.parent(line), cst.IndentedBlock)
    at = block.body.index(line)
    rest = block.body[at + 1 :]
    if not rest:
        raise Refused("nothing follows the line that gets the client")
    item = cst.WithItem(source.expression("distributed.worker_client()"), cst.AsName(cst.Name(_client(line))))
    held = cst.With([item], cst.IndentedBlock(rest), leading_lines=line.leading_lines)
    edited = source.edited({block: becomes(block.with_changes(body=[*block.body[:at], held]))})
    return Patched(edited.importing("distributed"), "a task that waits for its own tasks gives up its thread")


def _client(line: cst.SimpleStatementLine) -> str:
    """The name in `name = get_client()`; empty for another line."""
    match line.body:
        case [cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=cst.Call(args=[]) as call)] if (
            called(call) == "get_client"
        ):
            return name
    return ""
