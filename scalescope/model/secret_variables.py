"""Fields of specifications that are kept with the results, and the environment variables that hold their secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from scalescope.errors import InvalidField, UsageError
from scalescope.model.cluster import json_mapping
from scalescope.redaction import LOOKS, NAMES, hide, know

NOT_SHOWN = "(not shown)"


def read_mapping(spec: object, name: str) -> None:
    """Make a field of a specification a mapping; an error does not show its value, which may hold a secret."""
    try:
        object.__setattr__(spec, name, json_mapping(f"cluster.{name}", getattr(spec, name)))
    except InvalidField as error:
        raise InvalidField(f"cluster.{name}", NOT_SHOWN, error.allowed) from None


def check_variables(secrets: Mapping[str, object]) -> None:
    """Refuse values that are no names of environment variables; the variables' contents are secret from now on."""
    for name, variable in secrets.items():
        if not isinstance(variable, str) or not re.fullmatch(r"[A-Za-z_]\w*", variable):
            raise InvalidField(f"cluster.secrets.{name}", NOT_SHOWN, "the name of an environment variable")
    know(*map(str, secrets.values()))


def refuse_secrets(field: str, value: Mapping[str, Any], next_step: str) -> None:
    """Refuse a field with a value that looks like a secret; `{}` in `next_step` becomes the path of the value."""
    for path in _secret(value):
        name = ".".join(path)
        raise InvalidField(
            f"cluster.{field}.{name}",
            NOT_SHOWN,
            f"no value that looks like a secret: {field} are stored with the results",
            next_step=next_step.format(name),
        )


def secret_values(secrets: Mapping[str, str], block: str) -> dict[str, str]:
    """Contents of the variables, by name of the secret; `block`: the Prefect block that could hold them instead."""
    missing = [variable for variable in secrets.values() if variable not in os.environ]
    if missing:
        raise UsageError(
            f"the environment variable {missing[0]} is not set",
            where="cluster.secrets",
            cause="the cluster needs the secret that this variable should hold",
            next_step=f"export {missing[0]} where scalescope is started, or use a saved {block} block",
        )
    return {name: os.environ[variable] for name, variable in secrets.items()}


def _secret(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of values that look like a secret, by name or by content."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if NAMES.search(name) and item is not None and not isinstance(item, bool):
                yield (*path, name)
            yield from _secret(item, (*path, name))
        if NAMES.search(str(value.get("name", ""))) and "value" in value:  # the environment of a pod
            yield (*path, "value")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _secret(item, (*path, str(number)))
    elif isinstance(value, str) and (LOOKS.search(value) or hide(value) != value):
        yield path
