"""Sends joblib's work to the cluster: `with joblib.parallel_config(backend="dask"):` around the statement."""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.remedies.source import Answer, NotHere, Patched, Source, answer, argument, becomes, called

CONFIGURES = ("parallel_config", "parallel_backend")


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    if any(called(each) in CONFIGURES or argument(each, "scheduler") for each in source.all(cst.Call)):
        return NotHere("the module already says where to compute")
    lines = source.at(cst.SimpleStatementLine, place)
    return answer(_around, source, lines, "no statement is at that line")


def _around(source: Source, line: cst.SimpleStatementLine) -> Patched:
    (block,) = source.statements('with joblib.parallel_config(backend="dask"):\n    pass\n')
    body = cst.ensure_type(cst.ensure_type(block, cst.With).body, cst.IndentedBlock)
    inner = body.with_changes(body=[line.with_changes(leading_lines=())])
    edited = source.edited({line: becomes(block.with_changes(body=inner, leading_lines=line.leading_lines))})
    return Patched(edited.importing("joblib"), "joblib computes on the cluster")
