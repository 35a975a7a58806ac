"""Workers and transfers beside the time that a patch gains."""

from __future__ import annotations

import pytest

from scalescope.analysis.cost import Prices
from scalescope.fixing.usage import NETWORK, Usage

PRICED = Prices({"default": 36.0}, "EUR")


@pytest.mark.parametrize(
    ("before", "after", "prices"),
    [
        (Usage(2, 0), Usage(2, 0), PRICED),
        (Usage(2, 10**9), Usage(2, 0), PRICED),
        (Usage(2, 0), Usage(4, 0), Prices()),
        (Usage(2, 0), Usage(4, 0), PRICED),  # twice the workers for half the time
        (Usage(2, 0), Usage(2, int(0.9 * NETWORK)), PRICED),  # less than the second that it gains
    ],
)
def test_a_patch_that_costs_no_more_than_it_gains_is_offered(before: Usage, after: Usage, prices: Prices) -> None:
    assert before.dearer(after, 2.0, 1.0, prices) == ""


def test_a_patch_that_transfers_longer_than_it_gains_is_not_offered() -> None:
    told = Usage(2, 0).dearer(Usage(2, int(2 * NETWORK)), 2.0, 1.0, Prices())
    assert "191 MiB" in told


def test_a_patch_that_costs_more_is_not_offered() -> None:
    told = Usage(2, 0).dearer(Usage(8, 0), 2.0, 1.0, PRICED)
    assert "0.08 instead of 0.04 EUR" in told


def test_only_resources_whose_use_differs_are_reported() -> None:
    assert Usage(2, 0).words(Usage(2, 0)) == ""
    assert Usage(2, 0).words(Usage(4, 2**20)) == "workers 2 -> 4; transfers 0 B -> 1 MiB"
