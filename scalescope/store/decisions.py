"""People's decisions about series of nights, in the store."""

from __future__ import annotations

from sqlalchemy import select

from scalescope.model.decision import Decision
from scalescope.store.json_text import clean
from scalescope.store.schema import DecisionRow
from scalescope.store.studies import Transaction, now_of


class Decisions:
    """The decisions of a store (`Store.decisions`)."""

    def __init__(self, read: Transaction, write: Transaction) -> None:
        self._read = read
        self._write = write

    def keep(self, decision: Decision) -> None:
        """Keep a decision with the present time; it replaces an earlier one of the same kind, history and series."""
        given = {name: clean(value) for name, value in decision.to_mapping().items() if name != "created_at"}
        with self._write("keep a decision") as session:
            session.merge(DecisionRow(**given, mutes=bool(decision.until), created_at=now_of(session)))

    def undo(self, what: str, history: str = "") -> int:
        """Remove the decisions about series, in one history or in all; return how many they were."""
        with self._write("undo a decision") as session:
            found = session.scalars(select(DecisionRow).where(DecisionRow.what == what)).all()
            undone = [row for row in found if history in ("", row.history)]
            for row in undone:
                session.delete(row)
            return len(undone)

    def of(self, history: str = "") -> list[Decision]:
        """The decisions for a history, or all, oldest first."""
        with self._read("read the decisions") as session:
            rows = session.scalars(select(DecisionRow).order_by(DecisionRow.created_at)).all()
            return [
                Decision(row.what, row.reason, row.until, row.history, row.who, row.created_at.isoformat())
                for row in rows
                if not history or row.history in ("", history)
            ]
