from __future__ import annotations

import pytest

from scalescope.report.table import (
    MISSING,
    Column,
    ReportTable,
    Row,
    Tone,
    fitting,
    legend,
    markdown_text,
    to_mappings,
    to_markdown,
    to_terminal,
)

NAME = Column[dict]("name", "name", lambda row: row.get("name"))
USED = Column[dict]("used", "workers used", lambda row: row.get("used"), short="used", rank=1)
IDEAL = Column[dict]("ideal", "ideal", lambda row: row.get("ideal"), lambda value: f"{value:.1f}", legend="max", rank=2)
ROWS = [{"name": "a", "used": 3, "ideal": 2.25}, {"name": "b"}]
TABLE = ReportTable(
    "What it shows", ("name", "a|b", ""), (Row(("<x>", "1", "y")), Row(("z", "2", ""), Tone.BAD)), frozenset({1})
)


def test_a_cell_without_a_value_is_a_dash():
    assert [USED.cell(row) for row in ROWS] == ["3", MISSING]
    assert IDEAL.cell(ROWS[0]) == "2.2"
    assert NAME.cell(None) == MISSING


@pytest.mark.parametrize(
    ("width", "titles"),
    [(25, ["name", "workers used", "ideal"]), (24, ["name", "used", "ideal"]), (17, ["name", "used", "ideal"]),
     (16, ["name", "used"]), (9, ["name"]), (1, ["name"])],
)  # fmt: skip
def test_headings_are_shortened_before_columns_are_dropped(width, titles):
    assert [column.title for column in fitting([NAME, USED, IDEAL], ROWS, width)] == titles


def test_shortened_headings_are_explained_in_a_legend():
    assert legend([NAME, USED, IDEAL]) == "ideal: max"
    assert legend(fitting([NAME, USED, IDEAL], ROWS, 20)) == "used: workers used; ideal: max"


def test_a_table_has_the_same_cells_in_markdown_mappings_and_terminal(printed, golden):
    golden(to_markdown(TABLE))
    assert to_mappings(TABLE) == [{"name": "&lt;x&gt;", "a|b": "1", "note": "y"}, {"name": "z", "a|b": "2", "note": ""}]
    lines = printed(to_terminal(TABLE)).splitlines()
    assert [line.split() for line in lines if "─" not in line] == [["name", "a|b"], ["<x>", "1", "y"], ["z", "2"]]


def test_columns_after_the_labels_are_columns_of_numbers():
    table = ReportTable.of("x", ("a", "b", "c"), [("1", "2", "3")], labels=2, notice="cut")
    assert (table.numbers, table.rows, table.notice) == ({2}, (Row(("1", "2", "3")),), "cut")


def test_markup_is_escaped_in_markdown_text():
    assert markdown_text("a|b\n<img> *x* [y](z) `c`") == r"a\|b &lt;img&gt; \*x\* \[y\](z) \`c\`"
