"""Clusters as blocks: one for each proven kind in the table `KINDS`, made from its specification."""

from __future__ import annotations

import os
import types
from abc import ABC
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from prefect.blocks.core import Block
from pydantic import ConfigDict, Field, SecretStr, model_validator

from scalescope.errors import InvalidField
from scalescope.model.cluster import ClusterSpec, cluster_spec, kinds
from scalescope.model.parameters import Declared, declared

# Field of a specification that names environment variables; a block holds their values instead, encrypted by Prefect
SECRETS = "secrets"


class ClusterBlock(Block, ABC):
    """Base of the cluster blocks; Prefect's catalogue has no abstract blocks."""

    # `extra="forbid"`: a block document fits one kind only, and a misspelt field is an error. Errors hide the refused
    # value, which may be a secret.
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", hide_input_in_errors=True)
    _block_schema_capabilities: ClassVar[list[str]] = ["cluster"]
    _parameter: ClassVar[str] = "cluster"  # parameter of a run for such a block (`scalescope.run.syntax.BLOCKS`)
    _spec: ClassVar[type[ClusterSpec]]

    def spec(self) -> ClusterSpec:
        """The specification that a sweep takes; raises `InvalidField`."""
        # Fields at their defaults are left out, so that the defaults of the machine that runs the flow can apply.
        own = {each.name: each.default for each in declared(self._spec)}
        given = {name: value for name in own if (value := getattr(self, name)) != own[name]}
        if SECRETS in given:
            given[SECRETS] = {name: _variable(name) for name in given[SECRETS]}
        return cluster_spec({"kind": self._spec.kind, **given})

    def value(self) -> ClusterSpec:
        """The specification; its secrets go into the environment of this process, which drivers inherit."""
        for name, secret in getattr(self, SECRETS, {}).items():
            os.environ[_variable(name)] = secret.get_secret_value()
        return self.spec()

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            self.spec()
        except InvalidField as error:
            raise ValueError(str(error)) from error
        return self


def _variable(argument: str) -> str:
    return f"SCALESCOPE_SECRET_{argument.upper().replace('.', '__')}"


def _block(spec: type[ClusterSpec]) -> type[ClusterBlock]:
    slug = spec.title.lower().replace(" ", "-")
    namespace: dict[str, Any] = {
        "__module__": __package__,  # module in which pickle and Prefect find the class
        "__doc__": f'{spec.summary()}\n\nA flow takes it by its name, as `cluster="{slug}/NAME"`.\n',
        "__annotations__": {each.name: _type(each) for each in declared(spec)},
        "_block_type_name": spec.title,
        "_block_type_slug": slug,
        "_spec": spec,
        **{each.name: _field(each) for each in declared(spec)},
    }
    name = slug.title().replace("-", "")
    return types.new_class(name, (ClusterBlock,), exec_body=lambda body: body.update(namespace))


def _type(declaration: Declared) -> Any:
    return dict[str, SecretStr] if declaration.name == SECRETS else declaration.type


def _field(declaration: Declared) -> Any:
    """The field for pydantic; bounds and examples are only for the form, since the specification has better errors."""

    def schema(made: dict[str, Any]) -> None:
        if declaration.optional:  # show a field that can stay empty, not a choice between a number and `null`
            del made["default"]
            made |= made.pop("anyOf")[0]
        made |= declaration.schema

    return Field(
        default=... if declaration.required else declaration.default,
        title=declaration.title,
        description=declaration.explained,
        json_schema_extra=schema,
    )


# Block types by kind
BLOCKS: Mapping[str, type[ClusterBlock]] = {kind: _block(spec) for kind, spec in kinds().items() if spec.proven}
