"""The store of results as a block, whose password Prefect encrypts and shows to nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from prefect.blocks.core import Block
from pydantic import ConfigDict, Field, SecretStr, model_validator

from scalescope.errors import InvalidField

if TYPE_CHECKING:
    from scalescope.store.store import Store


class ResultStore(Block):
    """A database of sweeps and trials, and the place of their raw records.

    A flow takes it by its name, as `store="result-store/NAME"`.
    """

    _block_type_name = "Result Store"
    _block_type_slug = "result-store"
    _parameter: ClassVar[str] = "store"  # parameter of a run for such a block (`scalescope.run.syntax.BLOCKS`)
    # Errors must not quote a refused address, which may hold a password.
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", hide_input_in_errors=True)

    url: str = Field(
        title="Address of the database",
        description=(
            "As SQLAlchemy writes it, without password: sqlite:////path/results.db, or postgresql://user@host/database."
        ),
        min_length=1,
        examples=["postgresql://scalescope@db/scalescope"],
    )
    password: SecretStr = Field(default=SecretStr(""), description="Password of the database's user; may be empty.")
    records: str = Field(
        default="",
        title="Folder of the raw records",
        description="Any fsspec address, such as s3://bucket/records; empty: next to the SQLite file.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        from scalescope.store.location import holds_password, locate

        try:
            location = locate(self.url)
        except InvalidField as error:
            raise ValueError(str(error)) from None
        if holds_password(self.url):
            raise ValueError("url: expected an address without a password; put the password into the field `password`")
        if location.path and self.password:
            raise ValueError("password: expected none, because url is a file")
        return self

    @property
    def address(self) -> str:
        """The whole address, with the password: never show it."""
        from sqlalchemy import make_url

        if not (password := self.password.get_secret_value()):
            return self.url
        return make_url(self.url).set(password=password).render_as_string(hide_password=False)

    def value(self) -> tuple[str, str]:
        return self.address, self.records

    def open(self) -> Store:
        from scalescope.store.store import Store

        return Store.open(self.address, self.records)
