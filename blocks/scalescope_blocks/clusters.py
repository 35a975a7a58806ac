"""Where a workload runs, as blocks: one for each kind of cluster, made of what its specification declares."""

from __future__ import annotations

import os
import types
from abc import ABC
from typing import Any, ClassVar, Self

from prefect.blocks.core import Block
from pydantic import ConfigDict, Field, SecretStr, model_validator

from scalescope.errors import InvalidField
from scalescope.model.cluster import ClusterSpec, cluster_spec, kinds
from scalescope.model.parameters import Declared, declared

SECRETS = "secrets"
"""A field of a specification that names environment variables; a block holds their values, which Prefect encrypts."""


class ClusterBlock(Block, ABC):
    """Base of the cluster blocks; as it is abstract, Prefect leaves it out of its catalogue."""

    # With `extra="forbid"` a block document is never mistaken for another kind's, and a misspelt field is an error.
    # What is refused may be a secret.
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", hide_input_in_errors=True)
    _block_schema_capabilities: ClassVar[list[str]] = ["cluster"]
    _spec: ClassVar[type[ClusterSpec]]

    def spec(self) -> ClusterSpec:
        """The specification that a sweep takes.

        Raises:
            InvalidField: A value is not allowed.
        """
        given = {name: getattr(self, name) for name in type(self).model_fields}
        if SECRETS in given:
            given[SECRETS] = {name: _variable(name) for name in given[SECRETS]}
        return cluster_spec({"kind": self._spec.kind, **given})

    def provide(self) -> None:
        """Put the secrets into the environment of this process, which drivers inherit."""
        for name, secret in getattr(self, SECRETS, {}).items():
            os.environ[_variable(name)] = secret.get_secret_value()

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            self.spec()
        except InvalidField as error:
            raise ValueError(str(error)) from error
        return self


def _variable(argument: str) -> str:
    return f"SCALESCOPE_SECRET_{argument.upper().replace('.', '__')}"


def block(spec: type[ClusterSpec]) -> type[ClusterBlock]:
    """The block of a kind of cluster, with the fields of its specification."""
    name = "".join(word.capitalize() for word in spec.title.split())
    slug = spec.title.lower().replace(" ", "-")
    namespace: dict[str, Any] = {
        "__module__": __package__,  # where they are found, to be pickled
        "__doc__": f'{spec.summary()}\n\nA flow takes it by its name, as `cluster="{slug}/NAME"`.\n',
        "__annotations__": {each.name: _type(each) for each in declared(spec)},
        "_block_type_name": spec.title,
        "_block_type_slug": slug,
        "_spec": spec,
        **{each.name: _field(each) for each in declared(spec)},
    }
    return types.new_class(name, (ClusterBlock,), exec_body=lambda body: body.update(namespace))


def _type(declaration: Declared) -> Any:
    return dict[str, SecretStr] if declaration.name == SECRETS else declaration.type


def _field(declaration: Declared) -> Any:
    """As pydantic takes it; bounds and examples are for the form alone, for the specification's check says more."""

    def schema(made: dict[str, Any]) -> None:
        if declaration.optional:  # a field that can stay empty, and no choice between a number and `null`
            del made["default"]
            made |= made.pop("anyOf")[0]
        made |= declaration.schema

    return Field(
        default=... if declaration.required else declaration.default,
        title=declaration.title,
        description=declaration.explained,
        json_schema_extra=schema,
    )


BLOCKS = {made.__name__: made for made in (block(spec) for spec in kinds().values() if spec.proven)}
