"""Common tools of rewrites: find nodes in a module, tell which names they use, and replace them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

import libcst as cst
from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider

from scalescope.model.finding import TIMES, Finding, Place

Node = TypeVar("Node", bound=cst.CSTNode)
At = TypeVar("At")  # place to try a rewrite at: a node, or several nodes that belong together
Comprehension: TypeAlias = cst.ListComp | cst.SetComp | cst.DictComp | cst.GeneratorExp
Loop: TypeAlias = cst.For | Comprehension
Changed: TypeAlias = cst.CSTNode | cst.FlattenSentinel[cst.CSTNode] | cst.RemovalSentinel
Edits: TypeAlias = dict[cst.CSTNode, Callable[[cst.CSTNode], Changed]]
# Functions without side effects, whose result does not depend on when they are called
HARMLESS = {
    *("len", "range", "int", "float", "str", "bool", "abs", "min", "max", "sum", "round", "sorted", "enumerate"),
    *("zip", "list", "tuple", "dict", "set", "frozenset", "repr", "isinstance", "format", "Path", "delayed"),
}
DELAYED = ("delayed", "dask.delayed")
PURE_MODULES = {"np", "numpy", "pd", "pandas", "da", "dd", "db", "xr", "math", "dask"}  # pure but for random numbers
LOOKS = {"format", "join", "split", "strip", "lower", "upper", "items", "keys", "values", "get", "copy"}
TAKING = {"pop", "remove", "clear", "sort", "fill", "reverse", "popitem", "discard", "resize", "put"}
SENDS = {"map", "submit", "delayed"}  # calls that make tasks
# Arguments of `submit` and `map` that the task does not get
OF_TASKS = {"pure", "priority", "workers", "retries", "resources", "allow_other_workers"}
ADDING = {"append", "extend", "add", "update", "insert", "setdefault"}  # methods that change only their own object


# Values that the client gets after the rewrite: the same; fewer, as some results stay on the cluster; or others, as the
# cluster now does work that the client did
Values = Literal["same", "fewer", "others"]


@dataclass(frozen=True)
class Patched:
    """A module with a remedy applied."""

    module: cst.Module
    what: str  # what was changed, as a clause
    values: Values = "same"


@dataclass(frozen=True)
class NotHere:
    """Why a rewrite leaves the code alone."""

    reason: str  # clause to follow "not here, because"


@dataclass(frozen=True)
class Setting:
    """A remedy that changes a parameter of a function; the module's caller, such as a sweep, gives its value."""

    function: str
    name: str  # name of the parameter
    change: Callable[[int], int]  # returns the new value of the parameter for the present one


Answer: TypeAlias = Patched | Setting | NotHere


class Refused(Exception):
    """Raised within a rewrite if it must leave the code alone; the text is the reason."""


class Given(Refused):
    """Raised if the number to change is a parameter whose value comes from outside the module."""

    def __init__(self, function: str, name: str) -> None:
        super().__init__(f"the number is the parameter `{name}` of `{function}`, and no call in this module sets it")
        self.function, self.name = function, name


def answer(
    rewrite: Callable[[Source, At], Patched | Setting], source: Source, places: Sequence[At], otherwise: str
) -> Answer:
    """Try a rewrite at each place in turn; if all refuse, return the first refusal (without places: `otherwise`)."""
    refusals = []
    for place in places:
        try:
            return rewrite(source, place)
        except Refused as refused:
            refusals.append(str(refused))
    return NotHere(refusals[0] if refusals else otherwise)


def decorators(function: cst.FunctionDef) -> list[str]:
    """Names of a function's decorators, with or without arguments, such as `dask.delayed`."""
    marks = [mark.decorator for mark in function.decorators]
    return [dotted(mark.func if isinstance(mark, cst.Call) else mark) for mark in marks]


class Source:
    """A module whose nodes know their lines and parents."""

    def __init__(self, module: cst.Module) -> None:
        wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
        self.module = module
        self._positions = wrapper.resolve(PositionProvider)
        self._parents = wrapper.resolve(ParentNodeProvider)

    def lines(self, node: cst.CSTNode) -> tuple[int, int]:
        at = self._positions[node]
        return at.start.line, at.end.line

    def is_at(self, node: cst.CSTNode, place: Place | None) -> bool:
        """Whether a place lies within a node; True if the place is unknown."""
        first, last = self.lines(node)
        return place is None or first <= place.line <= last

    def at(self, kind: type[Node], place: Place | None) -> list[Node]:
        """Nodes of a kind that contain a place; none if the place is unknown."""
        return [] if place is None else [each for each in self.all(kind) if self.is_at(each, place)]

    def leads_to(self, node: cst.CSTNode, place: Place | None) -> bool:
        """Whether a place lies within a node, or within a function of the module that the node calls or passes on."""
        names = {each.value for each in walk(node) if isinstance(each, cst.Name)}
        functions = (each for each in self.all(cst.FunctionDef) if each.name.value in names)
        return self.is_at(node, place) or any(self.is_at(each, place) for each in functions)

    def nearest(self, nodes: Iterable[Node], place: Place | None) -> list[Node]:
        """The nodes that contain a place, smallest first. If the place is unknown: the node, if there is only one."""
        found = [node for node in nodes if self.is_at(node, place)]
        if place is None:
            return found if len(found) == 1 else []
        return sorted(found, key=lambda node: self.lines(node)[1] - self.lines(node)[0])

    def reached(self, place: Place) -> list[cst.FunctionDef | cst.Module]:
        """The function or module around a line, and the functions of the module that the line calls."""
        within = [each for each in self.all(cst.FunctionDef) if self.is_at(each, place)]
        around: list[cst.FunctionDef | cst.Module] = [*self.nearest(within, place)[:1]] or [self.module]
        calls = [
            dotted(each.func) for each in self.all(cst.Call) if self.lines(each)[0] <= place.line <= self.lines(each)[1]
        ]
        return [*around, *(each for each in self.all(cst.FunctionDef) if each.name.value in calls)]

    def all(self, kind: type[Node], within: cst.CSTNode | None = None) -> list[Node]:
        return [node for node in walk(within or self.module) if isinstance(node, kind)]

    def names(self, name: str, within: cst.CSTNode) -> list[cst.Name]:
        """Uses of a function's or module's variable, without inner functions' own variables of this name."""
        return [node for node in of_scope(within, name) if isinstance(node, cst.Name) and node.value == name]

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        while (parent := self._parents.get(node)) is not None:
            yield parent
            node = parent

    def parent(self, node: cst.CSTNode) -> cst.CSTNode:
        return self._parents[node]

    def function(self, node: cst.CSTNode) -> cst.FunctionDef | cst.Module:
        """The function or module that a node is in."""
        return next(each for each in self.ancestors(node) if isinstance(each, cst.FunctionDef | cst.Module))

    def statement(self, node: cst.CSTNode) -> cst.BaseStatement:
        """The innermost statement that contains a node, or is the node."""
        for each in (node, *self.ancestors(node)):
            if isinstance(each, cst.BaseStatement):
                return each
        raise Refused("the code there is not part of a statement")

    def text(self, node: cst.CSTNode) -> str:
        return self.module.code_for_node(node).strip()

    def unused(self, name: str) -> str:
        """This name, with a number if the module has it already."""
        taken = {each.value for each in self.all(cst.Name)}
        names = (name, *(f"{name}_{number}" for number in range(2, 100)))
        return next(each for each in names if each not in taken)

    def expression(self, text: str) -> cst.BaseExpression:
        return cst.parse_expression(text, self.module.config_for_parsing)

    def statements(self, text: str) -> list[cst.BaseStatement]:
        return [*cst.parse_module(text, self.module.config_for_parsing).body]

    def edited(self, edits: Mapping[cst.CSTNode, Callable[[cst.CSTNode], Changed]]) -> Source:
        """The module with nodes replaced by their edit's result; edits of inner nodes are applied first."""
        changed = self.module.visit(_Edit(edits))
        assert isinstance(changed, cst.Module)
        return Source(changed)

    def importing(self, module: str) -> cst.Module:
        """The module with `import MODULE` before its other imports, unless it has that already."""
        bound = [name.evaluated_name for each in self.all(cst.Import) for name in each.names if name.asname is None]
        if module in bound:
            return self.module
        body, at = [*self.module.body], 0
        for number, each in enumerate(body):
            text = self.text(each)
            if text.startswith(('"', "'", "from __future__")) and number == at:
                at = number + 1
        (line,) = self.statements(f"import {module}\n")
        if at < len(body) and isinstance(body[at], cst.SimpleStatementLine):
            first = body[at]
            assert isinstance(first, cst.SimpleStatementLine)
            line = line.with_changes(leading_lines=first.leading_lines)
            body[at] = first.with_changes(leading_lines=())
        return self.module.with_changes(body=[*body[:at], line, *body[at:]])


class _Edit(cst.CSTTransformer):
    def __init__(self, edits: Mapping[cst.CSTNode, Callable[[cst.CSTNode], Changed]]) -> None:
        super().__init__()
        self._edits = edits

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> Changed:  # type: ignore[override]
        edit = self._edits.get(original_node)
        return edit(updated_node) if edit else updated_node


def before(*statements: cst.BaseStatement) -> Callable[[cst.CSTNode], Changed]:
    """An edit that puts statements before a node, below the comments and empty lines above that node."""

    def edit(node: cst.CSTNode) -> Changed:
        first, *rest = statements
        lines = getattr(node, "leading_lines", ())
        first = first.with_changes(leading_lines=lines)
        return cst.FlattenSentinel([first, *rest, node.with_changes(leading_lines=())])

    return edit


def becomes(node: cst.CSTNode) -> Callable[[cst.CSTNode], Changed]:
    return lambda updated: node


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A node and all within it."""
    yield node
    for child in node.children:
        yield from walk(child)


def of_scope(node: cst.CSTNode, name: str) -> Iterator[cst.CSTNode]:
    """A node and all within it, except functions that have their own variable of this name."""
    yield node
    for child in node.children:
        if not (isinstance(child, cst.FunctionDef | cst.Lambda) and _has_own(child, name)):
            yield from of_scope(child, name)


def _has_own(function: cst.CSTNode, name: str) -> bool:
    inside = [*walk(function)]
    outer = (item for each in inside if isinstance(each, cst.Global | cst.Nonlocal) for item in each.names)
    return all(item.name.value != name for item in outer) and any(binds(each, name) for each in inside)


# ------------------------------------------------------------------ names


def used(*nodes: cst.CSTNode) -> set[str]:
    """Names that are read or bound in these nodes; not those of attributes and keywords."""
    found = set()
    for node in nodes:
        match node:
            case cst.Name():
                found.add(node.value)
            case cst.Attribute():
                found |= used(node.value)
            case cst.Arg():
                found |= used(node.value)
            case _:
                found |= used(*node.children)
    return found


def root(node: cst.CSTNode) -> str:
    """The name at the start of a chain of attributes, calls and subscripts; empty if it starts otherwise."""
    while isinstance(node, cst.Attribute | cst.Subscript | cst.Call):
        node = node.func if isinstance(node, cst.Call) else node.value
    return node.value if isinstance(node, cst.Name) else ""


def dotted(node: cst.CSTNode) -> str:
    """A name or a chain of attributes as text, such as `dask.bag.from_sequence`; empty for other nodes."""
    if isinstance(node, cst.Attribute):
        head = dotted(node.value)
        return f"{head}.{node.attr.value}" if head else ""
    return node.value if isinstance(node, cst.Name) else ""


def called(call: cst.Call) -> str:
    """The last name of what is called, such as `submit`."""
    match call.func:
        case cst.Attribute(attr=name) | (cst.Name() as name):
            return name.value
    return ""


def argument(call: cst.Call, name: str) -> cst.Arg | None:
    return next((each for each in call.args if each.keyword is not None and each.keyword.value == name), None)


def with_argument(source: Source, call: cst.Call, text: str) -> cst.Call:
    """The call with the keyword argument `text`, such as `minimum=4`, added or replaced."""
    added = cst.ensure_type(source.expression(f"f({text})"), cst.Call)
    name = text.partition("=")[0]
    kept = [each for each in call.args if each.keyword is None or each.keyword.value != name]
    if kept:
        kept[-1] = kept[-1].with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
    return call.with_changes(args=[*kept, *added.args])


def times_as_much(finding: Finding) -> int | None:
    """Factor by which each task should do more, from the finding; None unless it names one above 1."""
    told = next((each.value for each in finding.evidence if each.what == TIMES), None)
    return math.ceil(told) if isinstance(told, int | float) and told > 1 else None


def cached(source: Source, function: cst.FunctionDef, mark: str, what: str) -> Patched:
    """Add a decorator of `functools`, such as `functools.cache`, to a function, which must have none."""
    decorator = cst.Decorator(source.expression(mark))
    edited = source.edited({function: becomes(function.with_changes(decorators=[decorator]))})
    return Patched(edited.importing("functools"), what)


def bound(*nodes: cst.CSTNode) -> set[str]:
    """Names that statements and expressions bind."""
    found = set()
    for node in (each for every in nodes for each in walk(every)):
        match node:
            case cst.AssignTarget(target=target) | cst.AugAssign(target=target) | cst.AnnAssign(target=target):
                found |= _names(target)
            case cst.For(target=target) | cst.CompFor(target=target) | cst.NamedExpr(target=target):
                found |= _names(target)
            case cst.AsName(name=target):
                found |= _names(target)
            case cst.FunctionDef(name=name) | cst.ClassDef(name=name):
                found.add(name.value)
            case cst.ImportAlias(asname=None):
                found.add(dotted(node.name).partition(".")[0])
            case cst.Param(name=name):
                found.add(name.value)
    return found


def _names(target: cst.CSTNode) -> set[str]:
    match target:
        case cst.Name():
            return {target.value}
        case cst.Tuple() | cst.List():
            return set().union(*(_names(each.value) for each in target.elements))
        case cst.StarredElement():
            return _names(target.value)
    return set()


def targets(target: cst.CSTNode) -> list[str]:
    """Names in the target of a loop, in order."""
    return [node.value for node in walk(target) if isinstance(node, cst.Name) and node.value in _names(target)]


def stored(*nodes: cst.CSTNode) -> set[str]:
    """Names whose objects are changed: by assignment to a part, or by a method known to change its object."""
    found = set()
    for node in (each for every in nodes for each in walk(every)):
        match node:
            case cst.AssignTarget(target=target) if not isinstance(target, cst.Name):
                found.add(root(target))
            case cst.AugAssign(target=target):
                found.add(root(target))
            case cst.Call(func=cst.Attribute(value=value)) if called(node) in ADDING | TAKING:
                found.add(root(value))
    return found - {""}


def changed(*nodes: cst.CSTNode) -> set[str]:
    """Names that are bound, or whose objects may be changed by an assignment to a part, a method or a function."""
    found = bound(*nodes)
    for node in (each for every in nodes for each in walk(every)):
        match node:
            case cst.AssignTarget(target=target) | cst.AugAssign(target=target) | cst.Del(target=target):
                found.add(root(target))
            case cst.Call(func=cst.Attribute(value=value)):
                found.add(root(value))
        if isinstance(node, cst.Call) and not (_is_harmless(node) or dotted(node.func) == "print" or _adds(node)):
            found |= used(*node.args)
    return found - {""}


def lazy_functions(source: Source) -> dict[str, str]:
    """Functions of a module that are decorated with `delayed`, and the decorator as it is written."""
    marks = {
        each.name.value: [mark for mark in decorators(each) if mark in DELAYED] for each in source.all(cst.FunctionDef)
    }
    return {name: found[0] for name, found in marks.items() if found}


def lazily(call: cst.Call, functions: Mapping[str, str]) -> str:
    """`delayed` as written in `delayed(f)(x)` or, for `f(x)`, in the decorator of `f`; empty for other calls."""
    match call.func:
        case cst.Call(func=inner, args=[cst.Arg(), *_]) if dotted(inner) in DELAYED:
            return dotted(inner)
        case cst.Name(value=name):
            return functions.get(name, "")
    return ""


def is_pure(call: cst.Call) -> bool:
    """Whether the call is of a library function that only computes, without random numbers."""
    name = dotted(call.func)
    return name.partition(".")[0] in PURE_MODULES and "random" not in name and "." in name


def effects(*nodes: cst.CSTNode) -> list[cst.Call]:
    """Calls that may have side effects, or whose result depends on when they are made."""
    calls = [node for every in nodes for node in walk(every) if isinstance(node, cst.Call)]
    return [call for call in calls if not (_is_harmless(call) or _adds(call))]


def _is_harmless(call: cst.Call) -> bool:
    return is_pure(call) or (isinstance(call.func, cst.Name) and call.func.value in HARMLESS)


def _adds(call: cst.Call) -> bool:
    """Whether the call is of a method that can change only its own object."""
    return isinstance(call.func, cst.Attribute) and called(call) in ADDING | LOOKS


def binding(source: Source, name: str, within: cst.CSTNode) -> cst.BaseExpression | None:
    """The expression that a function or module assigns to a name, if it binds the name exactly once."""
    own = [each for each in of_scope(within, name) if binds(each, name)]
    if len(own) != 1 or not isinstance(own[0], cst.Assign) or len(own[0].targets) != 1:
        return None
    return own[0].value if isinstance(own[0].targets[0].target, cst.Name) else None


def binds(node: cst.CSTNode, name: str) -> bool:
    """Whether a node itself (not nodes within it) binds a name."""
    kinds = (
        cst.Assign | cst.AugAssign | cst.AnnAssign | cst.For | cst.NamedExpr | cst.AsName | cst.Param | cst.ImportAlias
    )
    if not isinstance(node, kinds):
        return False
    if isinstance(node, cst.For):
        return name in _names(node.target)
    if isinstance(node, cst.Assign):
        return any(name in _names(each.target) for each in node.targets)
    return name in bound(node)


def is_sent(source: Source, use: cst.CSTNode, calls: tuple[str, ...]) -> bool:
    """Whether an expression is an argument of one of these calls, or the iterable of a loop that sends tasks."""
    above = source.parent(use)
    if isinstance(above, cst.Arg) and isinstance(call := source.parent(above), cst.Call):
        return called(call) in calls
    if not isinstance(above, cst.For | cst.CompFor) or above.iter is not use:
        return False
    inner = above if isinstance(above, cst.For) else source.parent(above)
    return any(isinstance(each, cst.Call) and called(each) in SENDS for each in walk(inner))


def resized(
    source: Source, uses: Sequence[cst.BaseExpression], change: Callable[[int], int], what: str
) -> Patched | Setting:
    """Change the number written at these places, or bound to the name there; a `Setting` if only callers give it."""
    try:
        numbers = written(source, uses)
    except Given as given:
        return Setting(given.function, given.name, change)
    now = int(numbers[0].evaluated_value)
    new = change(now)
    if new == now:
        raise Refused(f"the remedy would leave the number as it is, {now:,}")
    edited = source.edited({number: becomes(cst.Integer(str(new))) for number in numbers})
    return Patched(edited.module, what.format(f"{new:,}"))


def written(source: Source, uses: Sequence[cst.BaseExpression]) -> list[cst.Integer]:
    """The numbers written at these places, or the number bound to the name there, if nothing else uses the name."""
    first = uses[0]
    if isinstance(first, cst.Attribute):
        return [_option(source, first, uses)]
    if not isinstance(first, cst.Name):
        if not all(isinstance(each, cst.Integer) for each in uses):
            raise Refused("the number is not a literal")
        return [each for each in uses if isinstance(each, cst.Integer)]
    scope = _scope(source, first)
    bindings = (cst.AssignTarget, cst.Param)
    for each in source.names(first.value, scope):
        holder = source.parent(each)
        is_keyword = isinstance(holder, cst.Arg) and holder.keyword is each
        if each not in uses and not is_keyword and not isinstance(holder, bindings):
            raise Refused(f"`{first.value}` is used for something else as well")
    value = named(source, first)
    if isinstance(value, cst.Attribute):
        return [_option(source, value, [value])]
    if not isinstance(value, cst.Integer):
        raise Refused("the number is not a literal")
    return [value]


def _option(source: Source, node: cst.Attribute, uses: Sequence[cst.CSTNode]) -> cst.Integer:
    """The default of a command-line option: for `args.size`, the 8 in `parser.add_argument("--size", default=8)`."""
    parsed, text = named(source, node.value) if isinstance(node.value, cst.Name) else None, source.text(node)
    if not isinstance(parsed, cst.Call) or called(parsed) != "parse_args":
        raise Refused("the number is not a literal")
    if any(each not in uses and source.text(each) == text for each in source.all(cst.Attribute)):
        raise Refused(f"`{text}` is used for something else as well")
    for call in (each for each in source.all(cst.Call) if called(each) == "add_argument"):
        names = [each.value for each in call.args if isinstance(each.value, cst.SimpleString) and each.keyword is None]
        default = argument(call, "default")
        options = {str(each.evaluated_value).lstrip("-").replace("-", "_") for each in names}
        if node.attr.value in options and default is not None and isinstance(default.value, cst.Integer):
            return default.value
    raise Refused(f"`{text}` has no default that is a literal")


def alike(source: Source, arg: cst.Arg) -> list[cst.BaseExpression]:
    """The value of an argument and, if it is a variable, its other uses as an argument with the same keyword."""
    if not isinstance(arg.value, cst.Name) or arg.keyword is None:
        return [arg.value]
    named_so = [each for each in source.all(cst.Arg, _scope(source, arg.value)) if each.keyword is not None]
    keyword, name = arg.keyword.value, arg.value.value
    others = [each.value for each in named_so if each.keyword and each.keyword.value == keyword and each is not arg]
    return [arg.value, *(each for each in others if dotted(each) == name)]


def named(source: Source, name: cst.Name) -> cst.BaseExpression | None:
    """The value of a parameter, or of a name bound once; raises `Given` if it comes from outside the module."""
    scope = _scope(source, name)
    if isinstance(scope, cst.FunctionDef):
        parameters = [each for each in walk(scope.params) if isinstance(each, cst.Param)]
        if found := [each for each in parameters if each.name.value == name.value]:
            return None if name.value in bound(scope.body) else _given(source, scope, found[0])
    return binding(source, name.value, scope)


def _scope(source: Source, name: cst.Name) -> cst.FunctionDef | cst.Module:
    function = source.function(name)
    is_local = isinstance(function, cst.FunctionDef) and name.value in bound(function.params, function.body)
    return function if is_local else source.module


def _given(source: Source, function: cst.FunctionDef, parameter: cst.Param) -> cst.BaseExpression | None:
    """The value of a parameter in the only call of its function, or its default; raises `Given` without a call."""
    names = [each.name.value for each in (*function.params.params, *function.params.kwonly_params)]
    uses = [each for each in source.all(cst.Name) if each.value == function.name.value and each is not function.name]
    calls = [each for use in uses if isinstance(each := source.parent(use), cst.Call) and each.func is use]
    if len(calls) != len(uses):
        raise Refused(f"`{function.name.value}` is passed on")
    if not calls:
        raise Given(function.name.value, parameter.name.value)
    at = names.index(parameter.name.value)
    values = []
    for call in calls:
        if any(each.star for each in call.args):
            raise Refused(f"the arguments of `{function.name.value}` are passed with `*` or `**`")
        positional = [each for each in call.args if each.keyword is None]
        arg = argument(call, parameter.name.value) or (positional[at] if at < len(positional) else None)
        values.append(parameter.default if arg is None else arg.value)
    if any(each is not values[0] for each in values):
        raise Refused(f"calls of `{function.name.value}` give several numbers")
    return values[0]


def is_main(condition: cst.If) -> bool:
    """Whether the statement is `if __name__ == "__main__":`."""
    return cst.Module([]).code_for_node(condition.test).startswith("__name__ ==")


def of_client(source: Source, node: cst.CSTNode, *names: str) -> bool:
    """Whether a node calls one of these methods of a Dask client."""
    match node:
        case cst.Call(func=cst.Attribute(value=client)):
            return called(node) in names and is_client(source, client)
    return False


def is_client(source: Source, node: cst.CSTNode) -> bool:
    """Whether an expression is a name that the module binds to a Dask client, or a parameter called `client`."""
    if not isinstance(node, cst.Name):
        return False
    made = ("Client", "get_client", "default_client", "worker_client", "get_dask_client")
    for each in walk(source.module):
        match each:
            case cst.Assign(value=cst.Call() as call, targets=[cst.AssignTarget(target=cst.Name(value=node.value))]):
                if called(call) in made:
                    return True
            case cst.WithItem(item=cst.Call() as call, asname=cst.AsName(name=cst.Name(value=node.value))):
                if called(call) in made:
                    return True
            case cst.Param(name=cst.Name(value=node.value)):
                if node.value == "client":
                    return True
    return False


def is_prefect_task(source: Source, name: str) -> bool:
    functions = [each for each in source.all(cst.FunctionDef) if each.name.value == name]
    return any(mark in ("task", "prefect.task") for each in functions for mark in decorators(each))
