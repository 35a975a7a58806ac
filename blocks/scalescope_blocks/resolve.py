"""Values of saved blocks, for the library."""

from __future__ import annotations

from typing import Any

from prefect.blocks.core import Block
from pydantic import ValidationError

from scalescope.errors import InvalidField


def saved(parameter: str, reference: str) -> Any:
    """The value of a saved block, named as TYPE/NAME; raises `InvalidField` if there is none for this parameter."""
    try:
        block: Any = Block.load(reference)
    except (ValidationError, RuntimeError) as error:  # since Prefect 3.9, `RuntimeError` wraps `ValidationError`
        invalid = error if isinstance(error, ValidationError) else error.__cause__
        if not isinstance(invalid, ValidationError):
            raise
        problem = "; ".join(each["msg"] for each in invalid.errors(include_input=False, include_url=False))
        raise InvalidField(parameter, reference, f"a valid block; {problem}", next_step="save it again") from None
    except ValueError as error:
        raise InvalidField(
            parameter,
            reference,
            "TYPE/NAME of a saved block",
            next_step="`prefect block ls` lists them; `prefect block register -m scalescope_blocks` adds types",
        ) from error
    if getattr(block, "_parameter", "") != parameter:
        raise InvalidField(parameter, reference, f"a block for a {parameter}; this is a {type(block).__name__}")
    return block.value()
