"""Options of sbatch that users may add. Others would separate a job from the process that watches it."""

from __future__ import annotations

import shlex

# Options that Scalescope itself sets, or that would make other jobs than the one it waits for.
TAKEN = frozenset(
    {"array", "clusters", "comment", "error", "help", "job-name", "output", "parsable", "requeue", "test-only"}
    | {"usage", "version", "wait", "wrap"}
)

_SHORT = {
    "a": "array",
    "e": "error",
    "h": "help",
    "J": "job-name",
    "M": "clusters",
    "o": "output",
    "V": "version",
    "W": "wait",
}
_FLAGS = frozenset("hHIkOQsuvVW")  # short options without a value: text right after one is a further option


def objection(line: str, *more: str) -> str:
    """Why a line such as `--nice=5` cannot be added; empty if it can. `more`: further options that cannot."""
    try:
        option, *values = shlex.split(line) or [""]
    except ValueError as error:
        return f"the option cannot be read: {error}"
    if not option.startswith("-") or option in ("-", "--") or "\n" in line:
        return "not an sbatch option: write one per line, each beginning with a dash"
    name = option[2:].partition("=")[0] if option.startswith("--") else _SHORT.get(option[1], "")
    # sbatch takes the beginning of an option's name for the whole name.
    if name and any(taken.startswith(name) for taken in TAKEN.union(more)):
        return "Scalescope sets this option itself, or could not track the job with it"
    if option.startswith("--") and values:
        return "write one option per line, and its value after an equals sign"
    if not option.startswith("--") and option[1] in _FLAGS and (option[2:] or values):
        return f"write one option per line; {option[:2]} takes no value"
    if len(values) > (len(option) == 2) or any(value.startswith("-") for value in values):
        return "write one option per line, and a value with blanks in quotes"
    return ""
