"""Resources of a version besides time and memory: workers, and bytes transferred between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scalescope.analysis.cost import DEFAULT, Prices
from scalescope.model.trial import Trial
from scalescope.model.words import duration, number, size

NETWORK = 100e6  # bytes/s between hosts of a cluster: transfers within this machine are faster than those it stands for


@dataclass(frozen=True)
class Usage:
    """Sum over all clusters that a program made, by its record."""

    workers: int
    transferred_bytes: int

    @classmethod
    def of(cls, trials: Sequence[Trial]) -> Usage:
        metrics = [each.metrics for each in trials if each.metrics is not None]
        transferred = sum((each.transferred_bytes or 0.0 for each in metrics), 0.0)
        return cls(sum(each.point.workers for each in trials), int(transferred))

    def words(self, after: Usage) -> str:
        """What changes, as parts of a sentence; empty if nothing does."""
        parts = []
        if after.workers != self.workers:
            parts.append(f"workers {self.workers:,} -> {after.workers:,}")
        if after.transferred_bytes != self.transferred_bytes:
            parts.append(f"transfers {size(self.transferred_bytes)} -> {size(after.transferred_bytes)}")
        return "; ".join(parts)

    def dearer(self, after: Usage, before_s: float, after_s: float, prices: Prices) -> str:
        """Why a faster version costs more than it gains; empty if it does not.

        Bytes are compared with the seconds that are gained, at the speed of a network (`NETWORK`); workers only where a
        price table says what an hour of one costs.
        """
        more = after.transferred_bytes - self.transferred_bytes
        if more / NETWORK > before_s - after_s:
            took = duration(more / NETWORK)
            return f"it transfers {size(more)} more, which takes {took} between the hosts of a cluster"
        hour = prices.worker_hour.get(DEFAULT, 0.0) / 3600
        now, then = hour * self.workers * before_s, hour * after.workers * after_s
        return f"it costs {number(then)} instead of {number(now)} {prices.currency}" if then > now else ""
