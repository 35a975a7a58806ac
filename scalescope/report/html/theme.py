"""Colours of the style sheet and the charts, for the light and the dark scheme.

Text has a contrast of at least 4.5 to 1, and marks in charts 3 to 1 (WCAG 2.2, 1.4.3 and 1.4.11). Only marks that mean
"nothing happened here" are fainter. Everything that a colour tells is also in a table.
"""

from __future__ import annotations

from collections.abc import Mapping

from scalescope.report.html.gantt import STAGES

# Colours by name, for the light and for the dark scheme
COLOURS: Mapping[str, tuple[str, str]] = {
    "page": ("#fcfcfb", "#14181b"),
    "surface": ("#f3f4f2", "#1d2226"),
    "ink": ("#1c2126", "#e6e9ea"),
    "muted": ("#59636e", "#a2acb5"),
    "rule": ("#dcdfdd", "#333a40"),
    "link": ("#0b5c8a", "#7cc0ea"),
    "high": ("#b02a1f", "#ff8d80"),
    "medium": ("#8a5300", "#f0b35a"),
    "low": ("#6a5d00", "#d8c75f"),
    "info": ("#45505c", "#b4bec8"),
    "good": ("#1f7348", "#6fcf9f"),
    "busy": ("#2b7d64", "#46b391"),
    "actors": ("#6b8f2a", "#a3c763"),
    "transfer": ("#3a6fb0", "#6fa4e6"),
    "serialisation": ("#1f8c9e", "#4fbccd"),
    "spill": ("#86499f", "#bb83d3"),
    "paused": ("#b06fc2", "#d7a0e6"),
    "no_runnable_task": ("#d3d7d9", "#3a4248"),
    "client": ("#9c4f74", "#d98bb0"),
    "other_cluster": ("#6a6fb5", "#9a9fe0"),
    "not_assigned": ("#b98006", "#e0ad3a"),
    "late_start": ("#a08262", "#b99c7b"),
    "lost": ("#c43a2c", "#f0695b"),
    "tail": ("#7b8ca1", "#8b9bb0"),
    "ideal": ("#7d8791", "#8d97a1"),
    "fit": ("#b3471d", "#f08a5c"),
    "heat-low": ("#eceeec", "#20262a"),
    "heat-high": ("#1b6b54", "#56d1aa"),
    "cursor": ("#b3471d", "#f08a5c"),
    "stage-0": ("#2b7d64", "#46b391"),
    "stage-1": ("#3a6fb0", "#6fa4e6"),
    "stage-2": ("#b9711f", "#e0a050"),
    "stage-3": ("#86499f", "#bb83d3"),
    "stage-4": ("#1f8c9e", "#4fbccd"),
    "stage-5": ("#a3485f", "#e07f97"),
    "stage-6": ("#6f7f2a", "#a9ba55"),
    "stage-7": ("#57626f", "#94a1af"),
    "stage-8": ("#868f99", "#6d7780"),
    "stage-9": ("#c43a2c", "#f0695b"),
}
LIGHT, DARK = ({name: pair[i] for name, pair in COLOURS.items()} for i in (0, 1))


def stage_colour(code: int) -> str:
    """The name of the colour of a stage (`gantt.stage_codes`)."""
    if not 0 <= code <= STAGES + 1:
        raise ValueError(f"there is no stage {code}")
    return f"stage-{code}"
