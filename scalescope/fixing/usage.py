"""Resources of a version besides time and memory: workers, and bytes transferred between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scalescope.analysis.cost import DEFAULT, Prices
from scalescope.model.trial import Trial
from scalescope.model.words import duration, number, size

NETWORK = 100e6  # assumed bytes/s between hosts of a cluster; processes of one machine transfer faster


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
        """Differences to a later version, as parts of a sentence; empty if there are none."""
        parts = []
        if after.workers != self.workers:
            parts.append(f"workers {self.workers:,} -> {after.workers:,}")
        if after.transferred_bytes != self.transferred_bytes:
            parts.append(f"transfers {size(self.transferred_bytes)} -> {size(after.transferred_bytes)}")
        return "; ".join(parts)

    def dearer(self, after: Usage, before_s: float, after_s: float, prices: Prices) -> str:
        """Why a faster version costs more than it gains; empty if it does not.

        Additional bytes count as seconds on a network (`NETWORK`), compared with the seconds gained. Workers count only
        if a price table has the price of a worker hour.
        """
        more = after.transferred_bytes - self.transferred_bytes
        if more / NETWORK > before_s - after_s:
            took = duration(more / NETWORK)
            return f"the patched script transfers {size(more)} more, which takes {took} between hosts of a cluster"
        hour = prices.worker_hour.get(DEFAULT, 0.0) / 3600
        now, then = hour * self.workers * before_s, hour * after.workers * after_s
        return f"the patched run costs {number(then)} instead of {number(now)} {prices.currency}" if then > now else ""
