"""Where results are kept, as a block: its address can hold a password, which Prefect keeps encrypted."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from prefect.blocks.core import Block
from pydantic import ConfigDict, Field, SecretStr

if TYPE_CHECKING:
    from scalescope.store.store import Store


class ResultStore(Block):
    """A database of sweeps and trials, and the place of their raw records.

    Example:
        ```python
        from scalescope_blocks import ResultStore

        ResultStore(url="postgresql+psycopg://scalescope:secret@db/scalescope", records="s3://bucket/records").save("team")
        ```
    """

    _block_type_name = "Result Store"
    _block_type_slug = "result-store"
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    url: SecretStr = Field(
        description=(
            "Database address as SQLAlchemy writes it: sqlite:////path/results.db, or "
            "postgresql+psycopg://user:password@host/database."
        )
    )
    records: str = Field(
        default="",
        description="Folder of the raw records, any fsspec address; empty: beside an SQLite file.",
    )

    def open(self) -> Store:
        """Connect to it; the caller closes it.

        Raises:
            StoreError: It cannot be reached.
        """
        from scalescope.store.store import Store

        return Store.open(self.url.get_secret_value(), self.records)
