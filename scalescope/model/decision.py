"""A person's decision about series of nights."""

from __future__ import annotations

from dataclasses import dataclass

from scalescope.model.mapping import Mapped


@dataclass(frozen=True)
class Decision(Mapped):
    """A decision to mute some series until a day, or to accept their present level."""

    what: str  # a workload, a kind of cluster, or one series as reports write it
    reason: str
    until: str = ""  # last day on which the series are muted, as 2027-01-31; empty: their level is accepted
    history: str = ""  # history concerned; empty: all
    who: str = ""
    created_at: str = ""  # UTC, ISO 8601

    @property
    def kind(self) -> str:
        return f"muted until {self.until}" if self.until else "level accepted"

    @property
    def line(self) -> str:
        """`bag-map: muted until 2027-01-31 (ann, 2026-11-26: its disk is noisy)`."""
        return f"{self.what}: {self.kind} ({self.who}, {self.created_at[:10]}: {self.reason})"
