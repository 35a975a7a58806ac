"""A year of nights, and the test of the whole suite: `python -m evidence year [folder]`.

The folder holds real series (`series.csv.gz` and `noise.csv`; also named by SCALESCOPE_SERIES). Series that one machine
measured in the same nights are a suite. Their levels are taken out at their change points, and stretches of
`BLOCK` whole nights are drawn until a year is full: what series have in common in a night, and from night to night,
stays. Without the folder, noise is made up.

First the test of the suite, by the smallest deviate: false alarms for the worse in a year, in the nights as they came
and as drawn, and percent of moves of the whole suite that are found within two weeks.
Then whole years, with what happens in `events`: what was told, after how many nights, and how often it was wrong.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
from support.year import Event, Year

from scalescope.nightly.changes import Change, Floats, find_changes
from scalescope.nightly.series import SETTLED
from scalescope.nightly.whole_suite import EFFECT, LATELY, NIGHTS

SERIES = 48  # of a suite
NIGHTS_A_YEAR = 365
BLOCK = 10  # nights that are drawn together
FEWEST, SHORTEST = 20, 60  # series and nights of a real suite
DEVIATES = (3.0, 3.5, 4.0, 4.5, 5.0)
MOVES = (0.01, 0.02, 0.03)  # of the whole suite; series differ by half of it


def suites(folder: Path) -> dict[str, Floats]:
    """Noise of real suites: logarithms without their levels, a row per night, a column per series."""
    with (folder / "noise.csv").open() as file:
        timed = {
            (row["source"], row["series"], row["machine"]) for row in csv.DictReader(file) if row["klass"] == "time"
        }
    groups: dict[str, dict[str, dict[str, float]]] = {}
    with gzip.open(folder / "series.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if (row["source"], row["series"], row["machine"]) in timed:
                group = groups.setdefault(f"{row['source']}, {row['machine']}", {})
                group.setdefault(row["series"], {})[row["time"]] = float(row["value"])
    found = {}
    for name, group in groups.items():
        counts = Counter(time for values in group.values() for time in values)
        nights = sorted(time for time, count in counts.items() if 2 * count >= len(group))
        logs = [np.log([values.get(time, np.nan) for time in nights]) for values in group.values()]
        logs = [each for each in logs if np.isfinite(each).mean() > 0.5]
        if len(logs) >= FEWEST and len(nights) >= SHORTEST:
            found[name] = np.column_stack([_flat(each) for each in logs])
    return found


def _flat(logs: Floats) -> Floats:
    """A series without its levels; where it was not measured, the night before stands in."""
    known = np.flatnonzero(np.isfinite(logs))
    values = logs[known]
    edges = [0, *(each.index for each in find_changes(np.exp(values).tolist(), 0.02)), len(values)]
    for begin, end in itertools.pairwise(edges):
        values[begin:end] -= np.median(values[begin:end])
    filled: Floats = values[np.maximum(np.searchsorted(known, np.arange(len(logs)), side="right") - 1, 0)]
    return filled


def made_up(rng: np.random.Generator) -> Floats:
    return rng.normal(0, 0.02, (600, SERIES)) + rng.normal(0, 0.005, (600, 1))


def drawn(noise: Floats, rng: np.random.Generator, nights: int = NIGHTS_A_YEAR) -> Floats:
    """Nights of noise in blocks of whole rows, of at most `SERIES` series and two controls."""
    starts = rng.integers(0, len(noise) - BLOCK + 1, -(-nights // BLOCK))
    rows = (starts[:, None] + np.arange(BLOCK)).ravel()[:nights]
    columns = rng.permutation(noise.shape[1])[: SERIES + 2]
    return noise[rows][:, columns]


def looks(noise: Floats, first: int = SETTLED - 1) -> list[tuple[int, list[Change]]]:
    """Each night from the first on, with the changes of the suite that its nights show; their indices are nights."""
    found = []
    for night in range(first, len(noise)):
        begin = max(0, night - NIGHTS + 1)
        window = noise[begin : night + 1]
        levels = np.exp(np.median(window - np.median(window, axis=0), axis=1)).tolist()
        found.append((night, [replace(each, index=begin + each.index) for each in find_changes(levels, EFFECT)]))
    return found


def alarms(looked: Sequence[tuple[int, list[Change]]], deviate: float) -> list[Change]:
    """Changes for the worse that are told, each once."""
    told: dict[int, Change] = {}
    for night, changes in looked:
        recent = [
            each
            for each in changes
            if each.deviate >= deviate and abs(each.relative) >= EFFECT and night - each.index < LATELY
        ]
        if recent and not any(each >= recent[-1].index for each in told):
            told[night] = recent[-1]
    return [each for each in told.values() if each.worse()]


def rates(noise: Floats, rng: np.random.Generator, times: int) -> None:
    """Prints, for each smallest deviate, what the test of the suite gets right and wrong."""
    own = looks(noise)
    years = [looks(drawn(noise, rng)) for _ in range(times)]
    moves: dict[float, list[list[tuple[int, list[Change]]]]] = {}
    for move in MOVES:
        for _ in range(5 * times):
            nights = drawn(noise, rng, 40 + LATELY)
            nights[40:] += rng.normal(move, move / 2, nights.shape[1])
            moves.setdefault(move, []).append(looks(nights, 40))
    for deviate in DEVIATES:
        false = np.mean([len(alarms(each, deviate)) for each in years])
        cells = [len(alarms(own, deviate)) * NIGHTS_A_YEAR / len(noise), false]
        for each in moves.values():
            cells.append(100 * np.mean([any(one.index >= 35 for one in alarms(looked, deviate)) for looked in each]))
        print(f"    {deviate:<6}" + "".join(f"{each:>9.2f}" for each in cells), flush=True)


def events(rng: np.random.Generator, series: int) -> list[Event]:
    """A year: two regressions in one night, a slow suite, a slow machine, a faster one, and slow again."""

    def some(count: int, factor: float) -> Floats:
        factors = np.ones(series)
        factors[rng.permutation(series)[:count]] = factor
        return factors

    every = np.exp(rng.normal(0.02, 0.01, series))
    machine = np.exp(0.15 * rng.uniform(0.5, 1, series))
    return [
        Event(70, some(3, 1.12), "crunch"),
        Event(70, some(4, 1.08), "shuffle"),
        Event(120, every, "dask"),
        Event(180, machine, last=187, controls=1.15),
        Event(250, some(1, 1.20), "frames"),
        Event(310, np.full(series, 1.03), controls=1.03),
    ]


def year(noise: Floats, seed: int, *, controls: int = 2) -> Year:
    rng = np.random.default_rng(seed)
    both = drawn(noise, rng)
    own, other = both[:, 2:], both[:, :controls]
    gone = {*range(150, 160), *np.flatnonzero(rng.random(len(both)) < 0.05).tolist()}
    muted = {(night, 0) for night in range(30, 100)}
    own[30:100, 0] += 0.2 * (rng.random(70) < 0.5)  # the one that is silenced
    return Year(own, other, events(rng, own.shape[1]), gone, muted, moved=220, seed=seed).run()


def years(noise: Floats, times: int, *, controls: int) -> None:
    every = [year(noise, seed, controls=controls) for seed in range(times)]
    for release, what in (("crunch", "alert"), ("shuffle", "alert"), ("frames", "alert"), ("dask", "suite")):
        nights = [each.first(release, what) for each in every]
        told = [each + 1 for each in nights if each is not None]
        middle = f", after {median(told):g} nights" if told else ""
        print(f"    {release:<8} told as {what}: {len(told)} of {times} years{middle}")
    kinds = ("alert", "suite", "suite machine", "suite faster", "machine", "refuted", "undecided", "faster")
    print("    a year: " + ", ".join(f"{kind} {np.mean([each.count(kind) for each in every]):.1f}" for kind in kinds))
    false = Counter(each.what for one in every for each in one.false)
    print(f"    false alerts a year: {false['alert'] / times:.2f} of series, {false['suite'] / times:.2f} of the suite")
    print(f"    {every[0].track.words}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path, default=Path(os.environ.get("SCALESCOPE_SERIES", "")))
    parser.add_argument("--times", type=int, default=20, help="years of each suite")
    parser.add_argument("--suite", default="", help="part of the names of the suites to take")
    parser.add_argument("--only", choices=("rates", "years"))
    asked = parser.parse_args()
    rng = np.random.default_rng(3)
    if (asked.folder / "noise.csv").is_file():
        found = {name: noise for name, noise in suites(asked.folder).items() if asked.suite in name}
    else:
        print("No real series: name the folder that holds series.csv.gz and noise.csv. Noise is made up.")
        found = {"made up": made_up(rng)}
    for name, noise in found.items():
        print(f"\n{name}: {noise.shape[1]} series, {len(noise)} nights, {asked.times} years")
        if asked.only != "years":
            print("deviate    in order    drawn     +1 %     +2 %     +3 %")
            rates(noise, rng, asked.times)
        if asked.only != "rates":
            for controls in (2, 0):
                print(f"  with {controls} controls", flush=True)
                years(noise, asked.times, controls=controls)
