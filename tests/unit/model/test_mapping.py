from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import pytest

from scalescope.errors import InvalidField
from scalescope.model.mapping import Mapped, from_mapping


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Leaf:
    value: float | int | str
    colour: Colour = Colour.RED


@dataclass(frozen=True)
class Tree(Mapped):
    name: str
    leaves: tuple[Leaf, ...] = ()
    best: Leaf | None = None
    sizes: Mapping[str, float] = field(default_factory=dict)
    count: int = 0
    tall: bool = False


TREE = Tree("oak", (Leaf(1), Leaf("x", Colour.BLUE)), Leaf(0.5), {"a": 1.5, "b": 2}, 3, True)


def test_a_dataclass_survives_conversion_to_json_and_back():
    assert Tree.from_mapping(json.loads(json.dumps(TREE.to_mapping()))) == TREE


def test_unknown_keys_of_newer_versions_are_ignored():
    assert Tree.from_mapping({"name": "oak", "newer": 1, "leaves": [{"value": 1, "newer": 2}]}) == Tree(
        "oak", (Leaf(1),)
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": None}, "name: expected text, got None"),
        ({"count": 1.5}, "count: expected a whole number"),
        ({"count": True}, "count: expected a whole number"),
        ({"sizes": {"a": "1"}}, "sizes.a: expected a number"),
        ({"sizes": []}, "sizes: expected a mapping"),
        ({"leaves": {}}, "leaves: expected a list"),
        ({"leaves": [{"colour": "red"}]}, r"leaves\[0\].value: expected a value"),
        ({"best": {"value": 1, "colour": "green"}}, "best.colour: expected one of red, blue"),
        ({"best": 3}, "best: expected a mapping"),
        ({"tall": 1}, "tall: expected true or false"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_path(change, text):
    with pytest.raises(InvalidField, match=text):
        Tree.from_mapping({**TREE.to_mapping(), **change})


def test_a_missing_required_key_is_refused():
    with pytest.raises(InvalidField, match="name: expected a value"):
        Tree.from_mapping({})
    with pytest.raises(InvalidField, match="Tree: expected a mapping"):
        from_mapping(Tree, [])
