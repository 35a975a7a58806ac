"""Changes partitions and chunks whose number or size the source states: more and smaller, or fewer and larger ones."""

from __future__ import annotations

import math

import libcst as cst

from scalescope.model.finding import BLOCK, Finding, Place
from scalescope.remedies.source import (
    Answer,
    NotHere,
    Patched,
    Refused,
    Setting,
    Source,
    alike,
    answer,
    argument,
    becomes,
    called,
    dotted,
    named,
    resized,
    times_as_much,
    with_argument,
)

READERS = ("read_text", "read_csv")  # calls that take `blocksize`
DIVIDED = {"from_sequence": 1, "from_pandas": 1}  # calls that take `npartitions`, and its position in them
THREADS = "threads asked for"  # name of the evidence with the number of threads
WAVES = 4  # with this many waves (tasks / threads), an incomplete last wave matters little
LIKE = 8  # chunk sides of up to this multiple of the shortest side are enlarged
LARGEST = 4096  # elements; where a dimension's length is unknown, no chunk gets longer than this times the factor


def smaller(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    """Make at least as many partitions as the finding asks for."""
    wanted = _wanted(finding)
    if wanted is None:
        return NotHere("the finding names no number of partitions")
    size = next((each.value for each in finding.evidence if each.what == BLOCK), None)

    def edit(source: Source, call: cst.Call) -> Patched | Setting:
        if called(call) in READERS:
            return _repartitioned(source, call, wanted) if size == 0 else _blocks(source, call, size)
        if called(call) in DIVIDED:
            return _partitions(source, call, wanted)
        if called(call) == "chunk":
            raise Refused("the lengths of the dimensions are unknown")
        return _chunks(source, call, wanted)

    source = Source(module)
    return answer(edit, source, source.nearest(_calls(source), place), "no call there makes partitions or chunks")


def larger(module: cst.Module, finding: Finding, place: Place | None) -> Answer:
    """Make partitions or chunks larger, by the factor that the finding gives."""
    times = times_as_much(finding)
    if times is None:
        return NotHere("the finding does not say how much larger tasks should be")

    def edit(source: Source, call: cst.Call) -> Patched | Setting:
        if called(call) in READERS:
            raise Refused("partitions of text files are not enlarged: each file is at least one partition")
        if called(call) == "chunk":
            return _larger_of_xarray(source, call, times)
        if called(call) not in DIVIDED:
            return _larger_chunks(source, call, times)
        if size := argument(call, "partition_size"):
            return resized(source, alike(source, size), lambda now: now * times, "a partition has {} items")
        count = argument(call, "npartitions")
        if count is None:
            raise Refused("the call has no `npartitions=`")
        return resized(
            source, alike(source, count), lambda now: max(1, now // times), "the number of partitions becomes {}"
        )

    source = Source(module)
    return answer(edit, source, source.nearest(_calls(source), place), "no call there makes partitions or chunks")


def _calls(source: Source) -> list[cst.Call]:
    calls = source.all(cst.Call)
    divide = (*DIVIDED, *READERS, "chunk")
    return [each for each in calls if called(each) in divide or argument(each, "chunks") is not None]


def _wanted(finding: Finding) -> int | None:
    changes = finding.gain.change if finding.gain else {}
    told = [value for name, value in changes.items() if name.endswith("npartitions")]
    waves = WAVES if finding.code == "uneven-waves" else 1
    told += [each.value * waves for each in finding.evidence if each.what == THREADS and isinstance(each.value, int)]
    return next((value for value in told if isinstance(value, int)), None)


def _blocks(source: Source, call: cst.Call, size: object) -> Patched:
    if not isinstance(size, int):
        raise Refused("the size of the files is unknown")
    kept = [
        each
        for each in call.args
        if each.keyword is None or each.keyword.value not in ("blocksize", "files_per_partition")
    ]
    changed = with_argument(source, call.with_changes(args=kept), f"blocksize={size:_}")
    return Patched(source.edited({call: becomes(changed)}).module, f"a partition has {size:,} bytes")


def _repartitioned(source: Source, call: cst.Call, wanted: int) -> Patched:
    """Add `repartition` after a reader of files that cannot be read in blocks."""
    if (around := source.parent(call)) and isinstance(around, cst.Attribute) and around.attr.value == "repartition":
        raise Refused("`repartition` already divides the result")
    divided = cst.Call(cst.Attribute(call, cst.Name("repartition")))
    changed = with_argument(source, divided, f"npartitions={wanted}")
    return Patched(source.edited({call: becomes(changed)}).module, f"the number of partitions becomes {wanted:,}")


def _partitions(source: Source, call: cst.Call, wanted: int) -> Patched | Setting:
    added = source.expression(f"f(npartitions={wanted})")
    assert isinstance(added, cst.Call)
    if sized := argument(call, "partition_size") or argument(call, "chunksize"):
        number = added.args[0].with_changes(comma=sized.comma)
        edited = source.edited({sized: becomes(number)})
        return Patched(edited.module, f"the number of partitions becomes {wanted:,}, whatever their size")
    given = argument(call, "npartitions")
    at = DIVIDED[called(call)]
    if given is None and len(call.args) > at and call.args[at].keyword is None and called(call) == "from_pandas":
        given = call.args[at]
    if given is not None:
        return resized(
            source, alike(source, given), lambda now: max(now, wanted), "the number of partitions becomes {}"
        )
    edited = source.edited({call: becomes(with_argument(source, call, f"npartitions={wanted}"))})
    return Patched(edited.module, f"the number of partitions becomes {wanted:,}")


# ------------------------------------------------------------------ chunks of arrays


def _chunks(source: Source, call: cst.Call, wanted: int) -> Patched | Setting:
    """Make chunks smaller along the dimension in which they are longest, by the shape in the call."""
    given, shape = argument(call, "chunks"), _shape(source, call)
    assert given is not None
    if not shape:
        raise Refused("the shape is not a literal in the call")
    if isinstance(given.value, cst.Name) and len(shape) == 1:
        return resized(
            source, alike(source, given), lambda now: max(1, min(now, shape[0] // wanted)), "a chunk is {} long"
        )
    now = _sizes(given.value, shape)
    count = math.prod(math.ceil(length / size) for length, size in zip(shape, now, strict=True))
    if count >= wanted:
        raise Refused("there are already enough chunks")
    pieces = [math.ceil(length / size) for length, size in zip(shape, now, strict=True)]
    at = max(range(len(shape)), key=lambda i: (shape[i] // pieces[i], -i))
    times = math.ceil(wanted / count)
    sizes = [max(1, shape[at] // (pieces[at] * times)) if i == at else size for i, size in enumerate(now)]
    return _with_sizes(source, given, sizes)


def _larger_chunks(source: Source, call: cst.Call, times: int) -> Patched | Setting:
    given, shape = argument(call, "chunks"), _shape(source, call)
    assert given is not None
    if sizes_of_name := _sizes_of_name(source, given.value):
        return _all_longer(source, sizes_of_name, times)
    if isinstance(given.value, cst.Integer | cst.Name):
        most = max(shape or (LARGEST * times,))
        return resized(source, alike(source, given), lambda now: max(now, min(now * times, most)), "a chunk is {} long")
    sizes = _sizes(given.value, shape)
    at = min(range(len(sizes)), key=lambda i: (sizes[i] if not shape or sizes[i] < shape[i] else math.inf, i))
    most = shape[at] if shape else sizes[at] * times
    return _with_sizes(source, given, [min(size * times, most) if i == at else size for i, size in enumerate(sizes)])


def _larger_of_xarray(source: Source, call: cst.Call, times: int) -> Patched:
    """Enlarge the sizes in `chunk({"x": 1, "y": 60})` or `chunk(x=1)` that are at most `LIKE` times the smallest."""
    named_so = [each.value for each in call.args if each.keyword is not None]
    for each in call.args[:1]:
        value = named(source, each.value) if isinstance(each.value, cst.Name) else each.value
        if isinstance(value, cst.Dict):
            named_so = [element.value for element in value.elements if isinstance(element, cst.DictElement)]
    sizes = [each for each in named_so if isinstance(each, cst.Integer)]
    if not sizes:
        raise Refused("the chunk sizes are not literals")
    least = min(int(each.evaluated_value) for each in sizes)
    return _all_longer(source, [each for each in sizes if int(each.evaluated_value) <= LIKE * least], times)


def _sizes_of_name(source: Source, node: cst.BaseExpression) -> list[cst.Integer]:
    """The numbers of the tuple that a variable holds, also through `normalize_chunks`; empty for other values."""
    value = named(source, node) if isinstance(node, cst.Name) else None
    if isinstance(value, cst.Call) and called(value) == "normalize_chunks":
        return _sizes_of_name(source, value.args[0].value)
    if not isinstance(value, cst.Tuple):
        return []
    sizes = [each.value for each in value.elements if isinstance(each.value, cst.Integer)]
    return sizes if len(sizes) == len(value.elements) else []


def _all_longer(source: Source, sizes: list[cst.Integer], times: int) -> Patched:
    longer = math.ceil(times ** (1 / len(sizes)))
    edited = source.edited({each: becomes(cst.Integer(str(int(each.evaluated_value) * longer))) for each in sizes})
    return Patched(edited.module, f"a chunk is {longer:,} times as long in each dimension")


def _shape(source: Source, call: cst.Call) -> list[int]:
    """Lengths of the dimensions in the call, if they are numbers or names of numbers; else empty."""
    given = [each.value for each in call.args if each.keyword is None or each.keyword.value in ("shape", "size")]
    if called(call) in ("linspace", "arange"):  # positional arguments before the length are no lengths
        given = given[2:3] if called(call) == "linspace" else given * (len(given) == 1)
    for each in given:
        if isinstance(each, cst.Tuple | cst.List):
            lengths = [_length(element.value, source) for element in each.elements]
            return [] if None in lengths else lengths  # type: ignore[return-value]
        if (length := _length(each, source)) is not None:
            return [length]
    return []


def _length(node: cst.BaseExpression, source: Source | None = None) -> int | None:
    """The value of a number, of a name bound to a number, or of a product of these; None for others."""
    match node:
        case cst.Integer():
            return int(node.evaluated_value)
        case cst.Name() if source is not None:
            value = named(source, node)
            return None if value is None else _length(value)
        case cst.BinaryOperation(operator=cst.Multiply()):
            left, right = _length(node.left, source), _length(node.right, source)
            return None if left is None or right is None else left * right
    return None


def _sizes(node: cst.BaseExpression, shape: list[int]) -> list[int]:
    match node:
        case cst.Integer():
            return [min(int(node.evaluated_value), length) for length in shape]
        case cst.UnaryOperation(operator=cst.Minus()):
            return [*shape]
        case cst.Tuple() | cst.List():
            found = [_length(each.value) if not _is_whole(each.value) else -1 for each in node.elements]
            if None in found or (shape and len(found) != len(shape)) or (-1 in found and not shape):
                raise Refused("the chunk sizes are not literals")
            sizes = [shape[i] if size == -1 else size or 1 for i, size in enumerate(found)]
            return [min(size, shape[i]) if shape else size for i, size in enumerate(sizes)]
    raise Refused("the chunk sizes are not literals")


def _is_whole(node: cst.BaseExpression) -> bool:
    minus = isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus)
    return minus or dotted(node) == "None"


def _with_sizes(source: Source, given: cst.Arg, sizes: list[int]) -> Patched:
    text = f"({', '.join(map(str, sizes))}{',' * (len(sizes) == 1)})"
    if source.text(given.value) == text:
        raise Refused("the chunks already have this size")
    edited = source.edited({given: becomes(given.with_changes(value=source.expression(text)))})
    return Patched(edited.module, f"a chunk is {text}")
