"""Keeps Dask from hashing data to name it, by arguments for a random name, such as `scatter(data, hash=False)`."""

from __future__ import annotations

import libcst as cst

from scalescope.model.finding import Finding, Place
from scalescope.model.records import NOT_HASHED
from scalescope.remedies.source import (
    Answer,
    NotHere,
    Patched,
    Refused,
    Source,
    answer,
    argument,
    becomes,
    called,
    with_argument,
)


def rewrite(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    source = Source(module)
    calls = [each for each in source.at(cst.Call, place) if called(each) in NOT_HASHED]
    if not any(text in finding.remedy for text in NOT_HASHED.values()):
        return NotHere("the time is not spent on hashing")
    return answer(_named_at_random, source, calls, "no call that hashes its data was found near that line")


def _named_at_random(source: Source, call: cst.Call) -> Patched:
    text = NOT_HASHED[called(call)]
    if argument(call, text.partition("=")[0]):
        raise Refused("the call already names its data")
    return Patched(
        source.edited({call: becomes(with_argument(source, call, text))}).module, "the data gets a random name"
    )
