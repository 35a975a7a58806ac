"""The steps of an isolation, written like an expert's notebook, for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group
from rich.text import Text

from scalescope.isolation.reduce import ReductionStep
from scalescope.isolation.removals import Setting, sentence
from scalescope.isolation.result import Isolation
from scalescope.model.words import plural
from scalescope.report.table import markdown_text

# Most trials of the first run that are shown, among them the smallest and the largest.
SEEN_SHOWN = 12


def line(step: ReductionStep[Setting]) -> str:
    return f"{step.words}: {step.reading.text} → {_outcome(step)}"


def ending(isolation: Isolation) -> str:
    reduction, setting = isolation.reduction, isolation.setting
    what = f"{setting.workload.name} on the {setting.cluster.kind} cluster, {sentence(isolation.trial)}"
    count = plural(len(reduction.steps), "trial")
    if reduction.minimal:
        return f"Isolated in {count}: {what}. Removing anything else makes the symptom go away."
    return (
        f"Ended early after {count} ({reduction.stopped}); the smallest case so far: {what}. The same command with a "
        "larger budget goes on from here."
    )


def render(isolation: Isolation) -> Group:
    lines = [Text(f"Symptom: {isolation.symptom}", style="bold")]
    lines += [Text(text, style="yellow" if shows else "") for text, shows in _seen(isolation)]
    lines.append(Text(f"From there ({_origin(isolation)}):"))
    for number, step in enumerate(isolation.reduction.steps, 1):
        lines.append(Text(f"{number:3d}. {line(step)}", style="" if step.kept else "dim"))
    lines += [Text(f"Note: {note}", style="yellow") for note in isolation.notes]
    lines.append(Text(ending(isolation), style="bold"))
    return Group(*lines)


def to_markdown(isolation: Isolation) -> str:
    blocks = [
        f"# Isolating {markdown_text(isolation.symptom)}",
        f"Run `{isolation.run_id}`, workload {markdown_text(isolation.sweep.workload)}.",
        "\n".join(f"- {markdown_text(text)}" for text, _ in _seen(isolation)),
        f"From {markdown_text(_origin(isolation))}:",
        "\n".join(f"{i}. {_markdown(step)}" for i, step in enumerate(isolation.reduction.steps, 1)),
        "\n".join(f"- Note: {markdown_text(note)}" for note in isolation.notes),
        f"**{markdown_text(ending(isolation))}**",
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _markdown(step: ReductionStep[Setting]) -> str:
    outcome = f"**{_outcome(step)}**" if step.kept else markdown_text(_outcome(step))
    return f"{markdown_text(step.words)}: {markdown_text(step.reading.text)} → {outcome}"


def _outcome(step: ReductionStep[Setting]) -> str:
    if step.kept:
        return "kept"
    return f"put back (not measured: {step.reading.problem})" if step.reading.problem else "put back (symptom gone)"


def _origin(isolation: Isolation) -> str:
    return f"{isolation.sweep.workload} on the {isolation.sweep.cluster.kind} cluster, {sentence(isolation.start)}"


def _seen(isolation: Isolation) -> Iterator[tuple[str, bool]]:
    seen = list(isolation.seen)
    left_out = len(seen) - SEEN_SHOWN
    if left_out > 0:
        seen = [*seen[: SEEN_SHOWN // 2], *seen[-SEEN_SHOWN // 2 :]]
    for position, item in enumerate(seen):
        if left_out > 0 and position == SEEN_SHOWN // 2:
            yield f"({plural(left_out, 'trial')} left out here)", False
        yield f"{sentence(item.trial)} → {'symptom' if item.shows else 'fine'}", item.shows
