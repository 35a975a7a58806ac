"""Each next step of a failure on Kubernetes is taken by a test, or has a reason not to be."""

from __future__ import annotations

from support.kubernetes_steps import STEPS, UNTRIED

from scalescope.clusters.kubernetes.failures import FAILURES

OTHERS = ("other-versions", "not-removed")  # categories with a next step that have no row in the table


def test_each_failure_category_has_a_test_that_follows_its_next_step_or_a_reason_for_none() -> None:
    tried = {step.category for step in STEPS.values()}
    assert not tried & UNTRIED.keys()
    assert tried | UNTRIED.keys() == {*(row.category for row in FAILURES if row.next_step), *OTHERS}
