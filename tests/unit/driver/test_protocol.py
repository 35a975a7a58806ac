from __future__ import annotations

import json
from dataclasses import MISSING, fields
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.driver.protocol import (
    Failed,
    Message,
    Open,
    Opened,
    Ready,
    Reply,
    Request,
    RunTrial,
    decode_reply,
    decode_request,
    encode,
)
from scalescope.errors import DriverError, InvalidField, WorkersMissing
from scalescope.model.cluster import kinds
from scalescope.model.mapping import read

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
mappings = st.dictionaries(st.text(), values, max_size=3)

BY_HINT: dict[Any, st.SearchStrategy[Any]] = {
    "str": st.text(),
    "int": st.integers(),
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "bool": st.booleans(),
    "Any": values,
    "float | None": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    "Mapping[str, Any]": mappings,
    "Mapping[str, Any] | None": st.none() | mappings,
    "tuple[str, ...]": st.lists(st.text(), max_size=3).map(tuple),
}


def messages(kinds: tuple[type[Message], ...]) -> st.SearchStrategy[Message]:
    return st.one_of(
        [st.builds(kind, **{item.name: BY_HINT[str(item.type)] for item in fields(kind)}) for kind in kinds]
    )


@given(messages(get_args(Request)), messages(get_args(Reply)))
def test_every_message_is_decoded_as_it_was_encoded(request_: Message, reply: Message) -> None:
    for message, decode in ((request_, decode_request), (reply, decode_reply)):
        line = encode(message)
        assert line.count(b"\n") == 1
        assert line.endswith(b"\n")
        assert decode(line) == message


NEEDED: dict[str, dict[str, Any]] = {
    **{kind: {"memory_mb": 1} for kind in ("pbs", "moab", "lsf", "sge", "oar", "htcondor")},
    "ssh": {"hosts": ("a", "b")},
    "scheduler": {"address": "tcp://a:1"},
    "custom": {"cluster_class": "a:B", "arguments": {"n": [1, 2]}},
}


@pytest.mark.parametrize("kind", kinds())
def test_every_cluster_specification_can_be_sent_to_a_driver(kind: str) -> None:
    spec = kinds()[kind](**NEEDED.get(kind, {}))
    assert decode_request(encode(Open(spec.to_mapping(), "folder"))) == Open(spec.to_mapping(), "folder")


def test_an_infrastructure_error_is_sent_with_cause_and_next_step() -> None:
    error = WorkersMissing("1 of 2", where="here", cause="it died", next_step="look")
    assert Failed.of(error) == Failed("WorkersMissing", "1 of 2", "here", "it died", "look")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "is not JSON"),
        (b"Traceback (most recent call last):", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b'{"kind": "closed", "reason": NaN}', "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[1, 2]", "is not a JSON object"),
        (b'{"reason": "no kind"}', "has the kind None"),
        (b'{"kind": 3}', "has the kind 3"),
        (b'{"kind": "opend", "facts": {}}', "has the kind 'opend'"),
        (b'{"kind": "open", "cluster": {}}', "has the kind 'open'"),
        (b'{"kind": "opened", "facts": {}, "extra": 1}', "unknown field 'extra'"),
        (b'{"kind": "opened"}', "facts: expected a value"),
        (b'{"kind": "opened", "facts": []}', "facts: expected a mapping"),
        (b'{"kind": "progress", "phase": "a", "text": "b", "limit_s": "3"}', "limit_s: expected a number"),
        (b'{"kind": "progress", "phase": "a", "text": "b", "limit_s": true}', "limit_s: expected a number"),
    ],
)
def test_an_invalid_reply_is_refused(line: bytes, problem: str) -> None:
    with pytest.raises(DriverError) as caught:
        decode_reply(line)
    assert problem in caught.value.what
    assert caught.value.next_step
    assert len(caught.value.where) < 300


def test_a_reply_sent_in_place_of_a_request_is_refused() -> None:
    with pytest.raises(DriverError, match="'ready'"):
        decode_request(encode(Ready(1, "3.11", {}, {}, {})))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}, b"bytes"])
def test_values_that_json_cannot_carry_are_refused_before_they_are_sent(value: object) -> None:
    with pytest.raises(DriverError, match="cannot be sent"):
        encode(Opened({"value": value}))


@given(messages((Open, RunTrial)), st.data())
def test_a_request_with_a_missing_field_is_refused(message: Message, data: st.DataObject) -> None:
    sent = json.loads(encode(message))
    needed = [item.name for item in fields(message) if item.default is MISSING and item.default_factory is MISSING]
    del sent[data.draw(st.sampled_from(needed))]
    with pytest.raises(DriverError, match="expected a value"):
        decode_request(json.dumps(sent))


def test_the_type_of_every_field_is_checked() -> None:
    for kind in (*get_args(Request), *get_args(Reply)):
        for name, hint in get_type_hints(kind).items():
            if name != "kind" and hint is not Any:
                with pytest.raises(InvalidField):
                    read(hint, object(), name)
