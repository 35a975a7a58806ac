"""What Prefect's server knows, in few words."""

from __future__ import annotations

from typing import Any

from prefect.client.orchestration import get_client


def artifacts(part: str = "") -> list[dict[str, Any]]:
    """Those with this text in their key, the latest first."""
    with get_client(sync_client=True) as client:
        found = client.request("POST", "/artifacts/filter", json={"sort": "UPDATED_DESC"}).json()
    return [each for each in found if part in (each["key"] or "")]


def by_type(part: str) -> dict[str, dict[str, Any]]:
    return {each["type"]: each for each in reversed(artifacts(part))}
