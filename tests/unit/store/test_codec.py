from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.errors import StoreError
from scalescope.store.json_text import clean, dumps, loads

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(values)
def test_any_value_survives_dumps_and_loads(value: Any) -> None:
    text = dumps(value)
    assert loads(text) == value
    assert text.isascii()
    json.loads(text, parse_constant=pytest.fail)


def test_nan_within_a_tuple_survives() -> None:
    (found,) = loads(dumps({"a": (math.nan,)}))["a"]
    assert math.isnan(found)


def test_a_mapping_that_looks_like_an_encoded_float_stays_a_mapping() -> None:
    assert loads(dumps({"$float": "nan?"})) == {"$float": "nan?"}
    assert loads(dumps({"$float": "nan", "x": 1})) == {"$float": "nan", "x": 1}


def test_a_value_that_json_cannot_hold_raises_store_error() -> None:
    with pytest.raises(StoreError, match="type set"):
        dumps({"a": {1}})


@given(st.text())
def test_clean_text_can_be_stored(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode("utf-8")
    assert "\0" not in cleaned
    assert clean(cleaned) == cleaned


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_clean_does_not_change_ordinary_text(text: str) -> None:
    assert clean(text) == text
