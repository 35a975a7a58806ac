"""Compares two runs of a script: they must not differ more than two runs of the original do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scalescope.fixing.outcome import Outcome
from scalescope.model.words import cut, plural
from scalescope.remedies.source import Values

TOLERANCE = 1e-9  # relative difference of decimal numbers that may come from another order of additions
_NUMBER = re.compile(r"[-+]?(?:\d[\d_,]*)?\.?\d+(?:[eE][-+]?\d+)?")
TEXTS = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".md")


def differences(originals: Sequence[Outcome], patched: Outcome, values: Values = "same") -> tuple[list[str], list[str]]:
    """Differences of the patched script from all runs of the original, and things that are not compared.

    Not compared are things that differ between runs of the original; values that the patched script leaves on the
    cluster (`values="fewer"`); all values (`values="others"`: then the script must print or write something).
    """
    found: list[str] = []
    varies: list[str] = []
    if patched.status not in {each.status for each in originals}:
        found.append(f"exit status {patched.status} instead of {originals[0].status}: {cut(patched.error)}")
        return found, varies
    _lines("its output", [each.lines for each in originals], patched.lines, found, varies)
    _lines("the output of its workers", [each.of_tasks for each in originals], patched.of_tasks, found, varies)
    _files(originals, patched, found, varies)
    if values != "others":
        _values(originals, patched, found, varies, fewer=values == "fewer")
    elif any(each.strip() for each in patched.lines) or patched.written:
        varies.append("values that the client gets")
    else:
        found.append("its client gets other values, and the script prints or writes nothing else to compare")
    return found, varies


def _lines(
    what: str,
    originals: Sequence[Sequence[str]],
    patched: Sequence[str],
    found: list[str],
    varies: list[str],
) -> None:
    lengths = {len(each) for each in originals}
    if len(lengths) > 1:  # only lines that all runs have are compared
        stable = Counter(originals[0])
        for each in originals[1:]:
            stable &= Counter(each)
        varies.append(f"{what}: {min(lengths):,} to {max(lengths):,} lines, different from run to run")
        if missing := stable - Counter(patched):
            found.append(f"{what} lacks {cut(repr(min(missing)))}")
        return
    if len(patched) != min(lengths):
        found.append(f"{what} has {plural(len(patched), 'line')} instead of {min(lengths):,}")
        return
    unlike = 0
    for number, line in enumerate(patched):
        known = [each[number] for each in originals]
        if len(set(known)) == 1:
            if not close(known[0], line):
                found.append(f"{what} has {cut(repr(line))} instead of {cut(repr(known[0]))}, line {number + 1:,}")
                return
            continue
        unlike += 1
        masked = {_NUMBER.sub("#", each) for each in known}
        if len(masked) == 1 and _NUMBER.sub("#", line) not in masked:
            found.append(f"{what} has {cut(repr(line))} where the original has {cut(repr(known[0]))}")
            return
    if unlike:
        varies.append(f"{what}: {plural(unlike, 'line')}")


def close(a: str, b: str) -> bool:
    """Whether two texts are equal except for the last digits of decimal numbers."""
    if a == b:
        return True
    if _NUMBER.sub("#", a) != _NUMBER.sub("#", b):
        return False
    pairs = zip(_NUMBER.findall(a), _NUMBER.findall(b), strict=True)
    return all(x == y or _near(x, y) for x, y in pairs)


def _near(a: str, b: str) -> bool:
    if not {".", "e", "E"} & {*a} or not {".", "e", "E"} & {*b}:
        return False  # counts and names must be equal
    try:
        x, y = (float(each.replace(",", "").replace("_", "")) for each in (a, b))
    except ValueError:
        return False
    return abs(x - y) <= TOLERANCE * max(abs(x), abs(y))


def _files(originals: Sequence[Outcome], patched: Outcome, found: list[str], varies: list[str]) -> None:
    names = [set(each.written) for each in originals]
    always = set.intersection(*names)
    if sometimes := set.union(*names) - always:
        varies.append(f"{plural(len(sometimes), 'file')} that only some runs write, such as {min(sometimes)}")
    if missing := always - set(patched.written):
        found.append(f"the patched script did not write {min(missing)}")
    if not sometimes and (more := set(patched.written) - always):
        found.append(f"the patched script also wrote {min(more)}")
    if {patched.gone} != {each.gone for each in originals}:
        found.append("the patched script did not remove the same files as the original")
    for name in sorted(always & set(patched.written)):
        known = {each.digests[name] for each in originals}
        if patched.digests[name] in known:
            continue
        if any(_same_values(each.written[name], patched.written[name]) for each in originals):
            continue
        if len(known) > 1:
            varies.append(name)
        else:
            found.append(f"the content of {name} differs")


def _values(
    originals: Sequence[Outcome], patched: Outcome, found: list[str], varies: list[str], *, fewer: bool
) -> None:
    """Compare the values that the client got, and how often; when and in which order it got them does not matter."""
    known, now = [Counter(each.values) for each in originals], Counter(patched.values)
    always, ever = known[0], known[0]
    for each in known[1:]:
        always, ever = always & each, ever | each
    missing, more = (sorted(each.elements(), key=_magnitude) for each in (always - now, now - ever))
    if unlike := (ever - always).total():
        varies.append(f"values that the client gets ({unlike:,})")
        missing = [each for each in missing if not any(close(each, other) for other in more)]
    elif len(missing) == len(more) and all(map(close, missing, more)):
        return
    if fewer and now:
        more = [each for each in more if not any(close(each, other) for other in missing)]
        varies.append(f"values that stay on the cluster ({len(missing):,})")
        missing, unlike = [], unlike + (not more)
    if missing:
        found.append(f"the patched script's client did not get {cut(missing[0])}")
    elif not ever:
        varies.append(f"values that now come to the client ({len(more):,})")
    elif not unlike:
        found.append(f"the patched script's client also got {cut(more[0])}")


def _magnitude(text: str) -> tuple[str, list[float]]:
    return _NUMBER.sub("#", text), [float(each.replace(",", "").replace("_", "")) for each in _NUMBER.findall(text)]


def _same_values(a: Path, b: Path) -> bool:
    """Whether two files hold the same values except for last digits; False for files of unknown kinds."""
    if a.suffix in TEXTS:
        one, other = (each.read_text(errors="replace").splitlines() for each in (a, b))
        return len(one) == len(other) and all(map(close, one, other))
    if a.suffix == ".npy":
        return _same_arrays(a, b)
    if a.suffix == ".parquet":
        return _same_tables(a, b)
    return False


def _same_arrays(a: Path, b: Path) -> bool:
    import numpy as np

    try:
        one, other = (np.load(each, allow_pickle=False) for each in (a, b))
    except ValueError:
        return False
    return bool(one.dtype == other.dtype and one.shape == other.shape and _close_numbers(one, other))


def _same_tables(a: Path, b: Path) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        one, other = (pq.read_table(each) for each in (a, b))
    except (pa.ArrowException, OSError):
        return False
    if one.schema != other.schema or one.num_rows != other.num_rows:
        return False
    for name in one.column_names:
        left, right = one[name], other[name]
        if not left.equals(right):
            if not pa.types.is_floating(left.type):
                return False
            if not _close_numbers(left.to_numpy(), right.to_numpy()):
                return False
    return True


def _close_numbers(a: Any, b: Any) -> bool:
    import numpy as np

    if a.dtype.kind not in "fc":
        return bool(np.array_equal(a, b))
    return bool(np.allclose(a, b, rtol=TOLERANCE, atol=0.0, equal_nan=True))
