"""Colours of the report, by day and by night: the style sheet and the charts read the same names.

Text has a contrast of at least 4.5 to 1 against its background, and marks of charts 3 to 1 (WCAG 2.2, 1.4.3 and
1.4.11); only what means "nothing happened here" is fainter, and every colour is also written out in a table.
"""

from __future__ import annotations

from collections.abc import Mapping

from scalescope.report.html.gantt import STAGES

LIGHT: Mapping[str, str] = {
    "page": "#fcfcfb",
    "surface": "#f3f4f2",
    "ink": "#1c2126",
    "muted": "#59636e",
    "rule": "#dcdfdd",
    "link": "#0b5c8a",
    "high": "#b02a1f",
    "medium": "#8a5300",
    "low": "#6a5d00",
    "info": "#45505c",
    "good": "#1f7348",
    "busy": "#2b7d64",
    "transfer": "#3a6fb0",
    "serialisation": "#1f8c9e",
    "spill": "#86499f",
    "paused": "#b06fc2",
    "no_runnable_task": "#d3d7d9",
    "not_assigned": "#b98006",
    "late_start": "#a08262",
    "lost": "#c43a2c",
    "tail": "#7b8ca1",
    "ideal": "#7d8791",
    "fit": "#b3471d",
    "heat-low": "#eceeec",
    "heat-high": "#1b6b54",
    "cursor": "#b3471d",
    "stage-0": "#2b7d64",
    "stage-1": "#3a6fb0",
    "stage-2": "#b9711f",
    "stage-3": "#86499f",
    "stage-4": "#1f8c9e",
    "stage-5": "#a3485f",
    "stage-6": "#6f7f2a",
    "stage-7": "#57626f",
    "stage-8": "#868f99",
    "stage-9": "#c43a2c",
}
DARK: Mapping[str, str] = {
    "page": "#14181b",
    "surface": "#1d2226",
    "ink": "#e6e9ea",
    "muted": "#a2acb5",
    "rule": "#333a40",
    "link": "#7cc0ea",
    "high": "#ff8d80",
    "medium": "#f0b35a",
    "low": "#d8c75f",
    "info": "#b4bec8",
    "good": "#6fcf9f",
    "busy": "#46b391",
    "transfer": "#6fa4e6",
    "serialisation": "#4fbccd",
    "spill": "#bb83d3",
    "paused": "#d7a0e6",
    "no_runnable_task": "#3a4248",
    "not_assigned": "#e0ad3a",
    "late_start": "#b99c7b",
    "lost": "#f0695b",
    "tail": "#8b9bb0",
    "ideal": "#8d97a1",
    "fit": "#f08a5c",
    "heat-low": "#20262a",
    "heat-high": "#56d1aa",
    "cursor": "#f08a5c",
    "stage-0": "#46b391",
    "stage-1": "#6fa4e6",
    "stage-2": "#e0a050",
    "stage-3": "#bb83d3",
    "stage-4": "#4fbccd",
    "stage-5": "#e07f97",
    "stage-6": "#a9ba55",
    "stage-7": "#94a1af",
    "stage-8": "#6d7780",
    "stage-9": "#f0695b",
}


def stage_colour(code: int) -> str:
    """The name of the colour of a stage (`gantt.stage_codes`)."""
    if not 0 <= code <= STAGES + 1:
        raise ValueError(f"there is no stage {code}")
    return f"stage-{code}"
