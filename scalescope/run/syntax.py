"""Reads command-line options and YAML files into the mapping that `Sweep` reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from scalescope.errors import InvalidField
from scalescope.model import axis, fields
from scalescope.model.fields import Scalar
from scalescope.model.sweep import ENVIRONMENT

# Parameters that can name a saved Prefect block (TYPE/NAME), and the prefix that the name must have: `store` can also
# be a path
BLOCKS = {"cluster": "", "store": "result-store/"}


def names_block(parameter: str, value: object) -> bool:
    """Whether a parameter names a saved Prefect block, such as `simulated-cluster/prod`."""
    if parameter not in BLOCKS or not isinstance(value, str) or ":" in value:
        return False
    return value.startswith(BLOCKS[parameter]) and value.count("/") == 1 and all(value.split("/"))


def names_blocks(given: Mapping[str, Any]) -> bool:
    """Whether any of these parameters names a saved Prefect block."""
    clusters = (("cluster", each) for each in given.get("clusters", ()))
    return any(names_block(name, value) for name, value in (*given.items(), *clusters))


def assignments(option: str, given: Iterable[str]) -> dict[str, str]:
    """Split each `name=text`. Raises `InvalidField` if a name is given twice."""
    found: dict[str, str] = {}
    for text in given:
        name, sign, rest = text.partition("=")
        name = name.strip()
        if not sign or not name:
            raise InvalidField(option, text, "NAME=VALUE")
        if name in found:
            raise InvalidField(option, text, f"each name once; {name!r} is there twice")
        found[name] = rest.strip()
    return found


def axes(given: Iterable[str]) -> dict[str, list[Scalar]]:
    """Read `workers=1,2,4`, `workers=1..8` and `items=50..300:50`."""
    found = assignments("--axis", given).items()  # an environment is not split: its requirements may contain commas
    return {name: [text] if name == ENVIRONMENT else axis.read(f"--axis {name}", text) for name, text in found}


def params(option: str, given: Iterable[str]) -> dict[str, Scalar]:
    return {name: axis.value(text) for name, text in assignments(option, given).items()}


def read_file(path: Path) -> dict[str, Any]:
    """Read a mapping from a YAML file, in which each key must be unique."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidField("FILE", str(path), f"a YAML file that can be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InvalidField("FILE", str(path), f"a YAML file in UTF-8 ({error.reason} at byte {error.start})") from error
    try:
        data = yaml.load(text, Loader=_Loader)  # noqa: S506 (a SafeLoader)
    except yaml.YAMLError as error:
        raise InvalidField("FILE", str(path), f"valid YAML; {_one_line(error)}") from error
    if not isinstance(data, dict):
        kind = {list: "a list", str: "text", type(None): "nothing"}.get(type(data), f"{data!r}")
        raise InvalidField("FILE", str(path), f"a mapping with the fields of a sweep; it holds {kind}")
    return fields.mapping("FILE", data)


def merge(data: dict[str, Any], section: str, given: Mapping[str, object]) -> None:
    if given:
        data[section] = {**fields.mapping(section, data.get(section, {})), **given}


def merge_environments(data: dict[str, Any], given: Sequence[str]) -> None:
    """Replace a file's environments: a single one is for all points, several are an axis."""
    if len(given) == 1:
        data[ENVIRONMENT] = given[0]
    elif given:
        merge(data, "axes", {ENVIRONMENT: list(given)})


def merge_cluster(data: dict[str, Any], kind: str | None, options: Mapping[str, Scalar]) -> None:
    """Replace a file's cluster, or fields of the cluster, by those that options give."""
    if kind is not None:
        data["cluster"] = kind
    if not options:
        return
    base = data.get("cluster", "simulated")
    if names_block("cluster", base):
        raise InvalidField("--cluster-option", dict(options), f"no options: the cluster {base!r} is saved with its own")
    data["cluster"] = {**({"kind": base} if isinstance(base, str) else fields.mapping("cluster", base)), **options}


class _Loader(yaml.SafeLoader):
    """Refuses a key that is given twice; YAML silently takes the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is there twice", key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _one_line(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())
