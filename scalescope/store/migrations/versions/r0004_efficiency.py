"""`efficiency` becomes T1 / (threads × makespan); what it was before is `schedule_quality`."""

from __future__ import annotations

import math
from typing import Any

import sqlalchemy as sa
from alembic import op

from scalescope.store.json_text import dumps, loads

revision = "0004"
down_revision = "0003"

TRIALS = sa.table(
    "trials",
    *(sa.column(name, sa.Text) for name in ("run_id", "key", "point_id", "metrics")),
    sa.column("efficiency", sa.Float(53)),
    sa.column("schedule_quality", sa.Float(53)),
)
POINTS = sa.table("points", sa.column("id"), sa.column("workers"), sa.column("threads_per_worker"))


def upgrade() -> None:
    """Trials of before get both, in their columns and in the mapping of all metrics."""
    op.add_column("trials", sa.Column("schedule_quality", sa.Float(precision=53), nullable=True))
    connection = op.get_bind()
    old = sa.select(
        TRIALS.c.run_id,
        TRIALS.c.key,
        sa.cast(TRIALS.c.metrics, sa.Text).label("metrics"),  # as text, so that a damaged one does no harm
        (POINTS.c.workers * POINTS.c.threads_per_worker).label("threads"),
    ).where(TRIALS.c.point_id == POINTS.c.id, TRIALS.c.metrics.is_not(None))
    changes = [change for row in connection.execute(old).mappings() if (change := _change(row))]
    if not changes:
        return
    text = sa.bindparam("b_metrics", type_=sa.Text)
    connection.execute(
        sa.update(TRIALS)
        .where(TRIALS.c.run_id == sa.bindparam("b_run_id"), TRIALS.c.key == sa.bindparam("b_key"))
        .values(
            efficiency=sa.bindparam("b_efficiency"),
            schedule_quality=sa.bindparam("b_schedule_quality"),
            metrics=text if connection.dialect.name == "sqlite" else sa.cast(text, sa.JSON),
        ),
        changes,
    )


def _change(row: Any) -> dict[str, Any] | None:
    """What a trial gets; nothing where its metrics cannot be read, which whoever reads it will say."""
    try:
        metrics = loads(row["metrics"])
        quality, whole = metrics["efficiency"], row["threads"] * metrics["makespan_s"]
        efficiency = metrics["work_s"] / whole if whole else math.nan
    except (ValueError, KeyError, TypeError):
        return None
    metrics |= {"efficiency": efficiency, "schedule_quality": quality}
    return {
        "b_run_id": row["run_id"],
        "b_key": row["key"],
        "b_metrics": dumps(metrics),
        "b_efficiency": _finite(efficiency),
        "b_schedule_quality": _finite(quality),
    }


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else value
