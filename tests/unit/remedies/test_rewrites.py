"""Rewrites of user code: how they change it, and when they leave it alone."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import libcst
import pytest

from scalescope.diagnosis.causes import by_code
from scalescope.model.finding import BLOCK, IN_FLIGHT, META_OF, SENT, TIMES, Evidence, Finding, Gain, Place, Severity
from scalescope.remedies import REWRITES, rewrites
from scalescope.remedies.meta_given import common
from scalescope.remedies.source import Answer, NotHere, Patched, Setting

CLIENT = "client = Client()\n"
EVIDENCE = (
    Evidence("threads asked for", 4, ""),
    Evidence(TIMES, 10, ""),
    Evidence(IN_FLIGHT, 8, ""),
    Evidence(SENT, 64, ""),
    Evidence(BLOCK, 28_000, ""),
    Evidence(META_OF + "f", "('a', 'int64')", ""),
)


def tried_finding(code: str) -> Finding:
    return Finding(code, Severity.HIGH, "", "", EVIDENCE)


def tried(code: str, name: str, text: str, place: Place | None = None, **change: int) -> Answer:
    """The result of one rewrite of a module."""
    finding = replace(tried_finding(code), gain=Gain(1.0, 0.5, change) if change else None)
    rewrite = dict(rewrites(code))[name]
    return rewrite(libcst.parse_module(dedent(text)), finding, place)


def patched(code: str, name: str, text: str, place: Place | None = None, **change: int) -> str:
    answer = tried(code, name, text, place, **change)
    assert isinstance(answer, Patched), answer
    ast.parse(answer.module.code)
    return answer.module.code


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("@delayed\ndef read(x):\n    return x", "@delayed(pure=True)\ndef read(x):\n    return x"),
        (
            "f = dask.delayed(read)(1)\ng = dask.delayed(use)(f)",
            "f = dask.delayed(read, pure=True)(1)\ng = dask.delayed(use)(f)",
        ),
    ],
)
def test_a_delayed_function_whose_calls_are_repeated_is_made_pure(text: str, new: str) -> None:
    assert patched("recomputation", "pure_calls", text, Place("s.py", 1, "", "read")) == new
    assert isinstance(tried("recomputation", "pure_calls", text, Place("s.py", 1, "", "other")), NotHere)


@pytest.mark.parametrize(("more", "kept"), [("", True), ("\ndef end(c):\n    c.close()", False)])
def test_a_function_that_makes_a_cluster_is_cached_if_nothing_closes_the_cluster(more: str, kept: bool) -> None:
    text = "def start():\n    return Client(n_workers=2)" + more
    answer = tried("cluster-in-each-round", "cluster_before_loop:kept", text, Place("s.py", 2, "start"))
    assert isinstance(answer, Patched) is kept
    assert not kept or answer.module.code == f"import functools\n@functools.cache\n{text}"


@pytest.mark.parametrize(("more", "moved"), [("", True), ("\n        p = next(p)", False)])
def test_data_that_each_round_scatters_is_scattered_before_the_loop(more: str, moved: bool) -> None:
    loop = "for i in range(3):\n    for j in js:{}\n        out.append(client.submit(f, j, sp))" + more
    scatter = "sp = client.scatter(p, broadcast=True)"
    text = CLIENT + loop.format(f"\n        {scatter}")
    answer = tried("slow-submission", "scatter:before_the_loop", text, Place("s.py", 4, "<module>"))
    assert isinstance(answer, Patched) is moved
    assert not moved or answer.module.code == CLIENT + f"{scatter}\n" + loop.format("")


STEPS = "x = a()\nfor i in range(9):\n    x = {}\n    print(x.mean().compute())"
OPTION = "p = ArgumentParser()\np.add_argument('--batch-size', type=int, default={})\nargs = p.parse_args()\n"
BATCHED = "for i in range(0, len(xs), args.batch_size):\n    client.gather(client.map(f, xs[i : i + args.batch_size]))"
SLEEPS = "cluster = LocalCluster(n_workers=0)\n{}client = Client(cluster)\ncluster.scale(N)\n{}\n"
ENGINE = """import time
class Engine:
    def __init__(self):
        time.sleep(1)
        self.table = np.arange(9)

    def at(self, x):
        return self.table[x]

def engine():
    return Engine()

def task(x):
    e = engine()
    return e.at(x)
"""
SEEDED = ENGINE.replace("np.arange(9)", "np.random.default_rng(3).normal(size=9)")
CHANGES = {
    "methods of actors": (
        *("results-awaited-in-loop", "awaited_in_loop", 1),
        "for a in actors:\n    s.append(a.step(x).result())",
        "for future in [a.step(x) for a in actors]:\n    s.append(future.result())",
    ),
    "hash of scattered data": (
        *("client-waits", "unhashed", 1, "f = client.scatter(x, broadcast=True)"),
        "f = client.scatter(x, broadcast=True, hash=False)",
    ),
    "hash of an array": ("client-busy", "unhashed", 1, "x = da.from_array(a)", "x = da.from_array(a, name=False)"),
    "a step in each round": (
        *("recomputation", "persist", 4, STEPS.format("g(x) + 1")),
        STEPS.format("(g(x) + 1).persist()"),
    ),
    "a coroutine that awaits nothing": (
        *("event-loop-blocked", "plain_function", 2, "async def f(x):\n    return g(x)\nfs = client.map(f, xs)"),
        "def f(x):\n    return g(x)\nfs = client.map(f, xs)",
    ),
    "files opened in the client": (
        *("client-busy", "parallel_open", 2, "def p(d):\n    return d + g(d)\nx = xr.open_mfdataset(fs, preprocess=p)"),
        "def p(d):\n    return d + g(d)\nx = xr.open_mfdataset(fs, preprocess=p, parallel=True)",
    ),
    "the first that ends": (
        *("straggler", "window:first_completed", 2, "for x in xs:\n    done, left = wait(left, return_when=ALL)"),
        'for x in xs:\n    done, left = wait(left, return_when="FIRST_COMPLETED")',
    ),
    "batches of an option": (
        *("straggler", "batches", 4, OPTION.format(8) + BATCHED),
        OPTION.format(64) + BATCHED,
    ),
    "sleep for workers": (
        *("client-busy", "workers_awaited", 4, SLEEPS.format("", "time.sleep(9)")),
        SLEEPS.format("", "client.wait_for_workers(N)"),
    ),
    "delayed of a result": (
        *("client-busy", "lazy_call", 2, "def f(x):\n    return x\nparts = [delayed(f(i, 2)) for i in y]"),
        "def f(x):\n    return x\nparts = [delayed(f)(i, 2) for i in y]",
    ),
    "a function called for its meta": (
        *("client-busy", "meta_given", 2, "def f(x):\n    return g(x)\ny = d.map_partitions(f, 1)\nd.apply(h, axis=1)"),
        "def f(x):\n    return g(x)\ny = d.map_partitions(f, 1, meta=('a', 'int64'))\nd.apply(h, axis=1)",
    ),
    "the longest last": (
        *("straggler", "longest_first", 1, "todo = sorted(xs, key=len)\nfs = client.map(f, todo)"),
        "todo = sorted(xs, key=len, reverse=True)\nfs = client.map(f, todo)",
    ),
    "the longest last in a loop": (
        *("straggler", "longest_first", 1, "xs.sort(key=len, reverse=True)\nfs = [client.submit(f, x) for x in xs]"),
        "xs.sort(key=len, reverse=False)\nfs = [client.submit(f, x) for x in xs]",
    ),
    "chunks of a name": (
        *("tiny-tasks", "partitions:larger", 2, "C = {'t': 1, 'x': 60}\ny = open().chunk(C)"),
        "C = {'t': 10, 'x': 60}\ny = open().chunk(C)",
    ),
    "one collection of a loop": (
        *("recomputation", "persist_where_made", 5),
        "def save(d):\n    np.save(d.compute())\ndef main():\n    x = load()\n"
        "    for d in (x.sum(), x.max()):\n        save(d)",
        "def save(d):\n    np.save(d.compute())\ndef main():\n    x = load().persist()\n"
        "    for d in (x.sum(), x.max()):\n        save(d)",
    ),
    "an index that is looked for": (
        *("recomputation", "persist_where_made", 2),
        "d = dd.from_map(f, xs)\nd = d.set_index('t')\nprint(d.v.sum().compute())",
        "d = dd.from_map(f, xs).persist()\nd = d.set_index('t')\nprint(d.v.sum().compute())",
    ),
    "reduced in the client": (
        *("client-waits", "computed_late", 1, "d = x.compute().groupby('k').v.mean().to_dict()"),
        "d = x.groupby('k').v.mean().compute().to_dict()",
    ),
    "reduced by name": (
        *("client-waits", "computed_late", 1, "df = x.compute()\nprint(df.v.sum())"),
        "df = x\nprint(df.v.sum().compute())",
    ),
    "a restart in each round": (
        *("client-waits", "left_out:restart", 3, "for x in xs:\n    run(x)\n    client.restart()\n"),
        "for x in xs:\n    run(x)\n",
    ),
    "joblib beside the cluster": (
        *("local-scheduler", "on_the_cluster", 2, "import joblib\ny = Parallel()(z)\n"),
        "import joblib\nwith joblib.parallel_config(backend=\"dask\"):\n    y = Parallel()(z)\n",
    ),
    "an object that stays as it is": (
        *("task-overhead", "cached_load", 11, ENGINE),
        "import functools\n" + ENGINE.replace("def engine", "@functools.lru_cache(maxsize=8)\ndef engine"),
    ),
    "an object of the same random numbers": (
        *("task-overhead", "cached_load", 11, SEEDED),
        "import functools\n" + SEEDED.replace("def engine", "@functools.lru_cache(maxsize=8)\ndef engine"),
    ),
}  # fmt: skip
UNCHANGED = {
    "a list of a loop": ("one collection of a loop", "load()", "list(load())"),
    "a method that needs the round before": ("methods of actors", "a.step(x)", "a.step(s)"),
    "a name already": ("hash of scattered data", "broadcast=True", "hash=True"),
    "no step": ("a step in each round", "g(x)", "g(y)"),
    "a coroutine that awaits": ("a coroutine that awaits nothing", "return g(x)", "return await g(x)"),
    "a coroutine that is awaited, too": ("a coroutine that awaits nothing", "fs =", "run(f(1))\nfs ="),
    "files that are opened in tasks": ("files opened in the client", "preprocess=p", "preprocess=p, parallel=False"),
    "another name for what is left": ("the first that ends", "done, left", "done, rest"),
    "an option of more": ("batches of an option", "client.gather", "print(args.batch_size)\n    client.gather"),
    "a sleep for tasks": ("sleep for workers", "time.sleep", "client.submit(f)\ntime.sleep"),
    "a meta already": ("a function called for its meta", "(f, 1)", "(f, 1, meta=m)"),
    "a function of unknown meta": ("a function called for its meta", "map_partitions(f", "map_partitions(k"),
    "what is not sent": ("the longest last", "map(f, todo)", "map(f, xs)"),
    "another function": ("delayed of a result", "delayed(f(", "delayed(g("),
    "an unknown method": ("reduced in the client", "groupby('k').v.mean()", "merge(z)"),
    "used twice": ("reduced by name", "print(df.v.sum())", "print(df.v.sum(), df)"),
    "a restart after the rounds": ("a restart in each round", "    client.restart()", "client.restart()"),
    "a backend of all": ("joblib beside the cluster", "y =", "parallel_backend('threading')\ny ="),
    "a method that stores": ("an object that stays as it is", "return self.table[x]", "self.x = x"),
    "an object of random numbers": ("an object that stays as it is", "np.arange(9)", "default_rng().normal(9)"),
    "an object that is passed on": ("an object that stays as it is", "return e.at(x)", "return e"),
}


def changed(name: str, text: str) -> Answer:
    code, rewrite, line, *_ = CHANGES[name]
    hashed = replace(tried_finding(code), remedy="pass `hash=False` or `name=False`")
    return dict(rewrites(code))[rewrite](libcst.parse_module(CLIENT + text), hashed, Place("a.py", line + 1))


@pytest.mark.parametrize("name", CHANGES)
def test_each_supported_line_is_rewritten_as_its_author_would_do_it(name: str) -> None:
    answer = changed(name, CHANGES[name][3])
    assert isinstance(answer, Patched), answer
    assert (
        answer.module.code.replace("import functools\n" + CLIENT, CLIENT + "import functools\n")
        == CLIENT + CHANGES[name][4]
    )


@pytest.mark.parametrize("name", UNCHANGED)
def test_a_line_whose_rewrite_could_change_its_meaning_is_left_alone(name: str) -> None:
    of, old, new = UNCHANGED[name]
    assert old in CHANGES[of][3]
    assert isinstance(changed(of, CHANGES[of][3].replace(old, new)), NotHere)


@pytest.mark.parametrize(
    ("metas", "whole"),
    [
        (["('a', 'int64')"] * 2, "('a', 'int64')"),
        (["('a', 'int64')", "('b', 'int64')"], "(None, 'int64')"),
        (["('a', 'int64')", "('a', 'float64')"], ""),
        (["{'a': 'int64'}", "('a', 'int64')"], ""),
        ([""], ""),
    ],
)
def test_the_meta_of_a_function_is_what_all_its_calls_have_in_common(metas: list[str], whole: str) -> None:
    assert common(metas) == whole


@pytest.mark.parametrize(("size", "more"), [(0, ".repartition(npartitions=4)"), (28_000, "")])
def test_text_files_without_a_known_block_size_are_repartitioned_after_reading(size: int, more: str) -> None:
    evidence = (Evidence("threads asked for", 4, ""), Evidence(BLOCK, size, ""))
    finding = Finding("too-few-partitions", Severity.HIGH, "", "", evidence)
    answer = dict(rewrites(finding.code))["partitions:smaller"](
        libcst.parse_module("b = db.read_text(p)"), finding, Place("a.py", 1)
    )
    assert isinstance(answer, Patched)
    assert answer.module.code == (f"b = db.read_text(p){more}" if more else "b = db.read_text(p, blocksize=28_000)")


def test_the_fix_page_lists_exactly_the_causes_that_have_a_rewrite() -> None:
    page = (Path(__file__).parents[3] / "docs" / "fix.md").read_text(encoding="utf-8")
    halves = page.partition("## Causes with a rewrite")[2].split("## Causes without one")
    first = (re.findall(r"^\| (`.+?) \|", half, re.MULTILINE) for half in halves)
    having, lacking = ({code for cell in cells for code in re.findall(r"`([\w-]+)`", cell)} for cells in first)
    assert having == set(REWRITES)
    assert lacking <= set(by_code()) - having
    assert len(lacking) > 10


def test_the_table_of_rewrites_names_known_causes_and_callable_functions() -> None:
    assert set(REWRITES) <= set(by_code())
    assert len({target for targets in REWRITES.values() for target in targets}) >= 8
    assert all(callable(rewrite) for code in REWRITES for _, rewrite in rewrites(code))


LOOPS = {
    "a generator": (
        "print(sum(client.submit(score, part).result() for part in range(20)))",
        "print(sum(client.gather(client.map(score, range(20)))))",
    ),
    "a list with other arguments": (
        "found = [client.submit(score, part, 2, pure=False).result() for part in parts if part]",
        "found = client.gather([client.submit(score, part, 2, pure=False) for part in parts if part])",
    ),
    "a dictionary": (
        "found = {x: g(client.submit(f, x).result()) for x in xs}",
        "found = {x: g(future.result()) for x, future in [(x, client.submit(f, x)) for x in xs]}",
    ),
    "gather of one": (
        "found = [client.gather(client.submit(f, x)) for x in xs]",
        "found = client.gather(client.map(f, xs))",
    ),
    "a statement": (
        """
        # each of them
        for x in xs:  # some
            # comment
            r = client.submit(f, x).result()  # awaited
            print('it is', r)
        """,
        """
        # each of them
        for future in [client.submit(f, x) for x in xs]:  # some
            # comment
            r = future.result()  # awaited
            print('it is', r)
        """,
    ),
    "the item is used later": (
        """
        for i, x in enumerate(xs):
            total += client.submit(f, x).result() * i
        """,
        """
        for i, future in [(i, client.submit(f, x)) for i, x in enumerate(xs)]:
            total += future.result() * i
        """,
    ),
    "statements before": (
        """
        for path in paths:
            name = path.stem
            future = client.submit(f, path)
            r = future.result()
            out[name] = r
        """,
        """
        pending = []
        for path in paths:
            name = path.stem
            future = client.submit(f, path)
            pending.append((name, future))
        for name, future in pending:
            r = future.result()
            out[name] = r
        """,
    ),
    "collections": (
        """
        import dask
        for kind in kinds:
            out.append(frame[frame.kind == kind].x.max().compute())
        """,
        """
        import dask
        for result in dask.compute(*[frame[frame.kind == kind].x.max() for kind in kinds]):
            out.append(result)
        """,
    ),
    "collections whose result nobody needs": (
        """
        import dask
        for kind in kinds:  # all of them
            frame[frame.kind == kind].to_parquet(f"{kind}", compute=False).compute()
        """,
        """
        import dask
        # all of them
        dask.compute(*[frame[frame.kind == kind].to_parquet(f"{kind}", compute=False) for kind in kinds])
        """,
    ),
    "a Prefect task": (
        "@task\ndef f(x): ...\n\n@flow\ndef main():\n    return [f.submit(x).result() for x in items]",
        "@task\ndef f(x): ...\n\n@flow\ndef main():\n    return f.map(items).result()",
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_that_awaits_results_is_rewritten_to_submit_all_tasks_first(name: str) -> None:
    text, wanted = (CLIENT + dedent(each) for each in LOOPS[name])
    assert patched("results-awaited-in-loop", "awaited_in_loop", text).splitlines() == wanted.splitlines()


@pytest.mark.parametrize("head", ["", '"""It computes."""\n\nfrom __future__ import annotations\n\n', "import dask\n"])
def test_a_rewrite_adds_import_dask_only_if_it_is_missing(head: str) -> None:
    loop = "\n# frames\nimport dask.dataframe as dd\n\nfound = [frame.sum().compute() for frame in frames]\n"
    wanted = loop.replace(
        "[frame.sum().compute() for frame in frames]", "list(dask.compute(*[frame.sum() for frame in frames]))"
    )
    if "import dask\n" not in head:
        wanted = wanted.replace("import dask.d", "import dask\nimport dask.d")
    assert patched("results-awaited-in-loop", "awaited_in_loop", head + loop) == head + wanted


LEFT_ALONE = {
    "the next round needs it": "state = 0\nfor x in xs:\n    state = client.submit(f, x, state).result()",
    "through an alias": "for x in xs:\n    r = client.submit(f, x, known).result()\n    known.append(r)",
    "through a function": "for x in xs:\n    r = client.submit(f, x, model).result()\n    update(model, r)",
    "through an element": "for x in xs:\n    r = client.submit(f, x, table).result()\n    table['a'] = r",
    "through an attribute": "for x in xs:\n    r = client.submit(f, x, s.best).result()\n    s.best = r",
    "rebound item": "for x in xs:\n    r = client.submit(f, x).result()\n    xs = [r]",
    "side effects": "for x in xs:\n    r = client.submit(f, load(x)).result()\n    save(r)",
    "prints": "for x in xs:\n    print(x)\n    r = client.submit(f, x).result()\n    print(r)",
    "break": "for x in xs:\n    r = client.submit(f, x).result()\n    if r > 3:\n        break",
    "return": "def g():\n    for x in xs:\n        return client.submit(f, x).result()",
    "errors": "for x in xs:\n    try:\n        r = client.submit(f, x).result()\n    except E:\n        pass",
    "a condition": "for x in xs:\n    if x:\n        r = client.submit(f, x).result()",
    "while": "while x:\n    x = client.submit(f, x).result()",
    "a generator that ends early": "found = any(client.submit(f, x).result() for x in xs)",
    "a generator that is passed on": "found = g(client.submit(f, x).result() for x in xs)",
    "random numbers": "for x in xs:\n    r = client.submit(f, random.random()).result()\n    y = r * random.random()",
    "a global variable": "def f(x):\n    global n\n    n += x\n\nfor x in xs:\n    client.submit(f, x).result()",
    "two of them": "for x in xs:\n    a = client.submit(f, x).result()\n    b = client.submit(g, a).result()",
    "a future made before": "future = client.submit(f)\nfor x in xs:\n    future.result()",
    "a time-out": "for x in xs:\n    r = client.submit(f, x).result(timeout=3)",
    "options of compute": "for x in xs:\n    r = x.sum().compute(scheduler='threads')",
    "else": "for x in xs:\n    client.submit(f, x).result()\nelse:\n    print(1)",
    "no loop": "r = client.submit(f, 1).result()",
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_a_loop_is_not_rewritten_if_that_could_change_its_behaviour(name: str) -> None:
    answer = tried("results-awaited-in-loop", "awaited_in_loop", CLIENT + LEFT_ALONE[name])
    assert isinstance(answer, NotHere)
    assert answer.reason


def test_only_the_loop_at_the_line_of_the_finding_is_rewritten() -> None:
    text = CLIENT + "a = [client.submit(f, x).result() for x in xs]\nb = [client.submit(g, x).result() for x in xs]\n"
    assert isinstance(tried("results-awaited-in-loop", "awaited_in_loop", text), NotHere)
    found = patched("results-awaited-in-loop", "awaited_in_loop", text, Place("a.py", 3, "<module>"))
    assert "a = [client.submit(f, x).result()" in found
    assert "b = client.gather(client.map(g, xs))" in found


OTHERS = {
    "persist": (
        "recomputation",
        "persist",
        "def main():\n    frame = dd.read_csv(p)\n    # two\n    a = frame.x.sum().compute()\n"
        "    b = frame.y.sum().compute()",
        "def main():\n    frame = dd.read_csv(p)\n    # two\n    frame = frame.persist()\n"
        "    a = frame.x.sum().compute()\n"
        "    b = frame.y.sum().compute()",
        {},
    ),
    "scatter": (
        "large-graph",
        "scatter",
        "def main(client):\n    model = load()\n    futures = [client.submit(predict, model, i) for i in range(9)]",
        "def main(client):\n    model = load()\n    [model_on_workers] = client.scatter([model], broadcast=True)\n"
        "    futures = [client.submit(predict, model_on_workers, i) for i in range(9)]",
        {},
    ),
    "scatter for map": (
        "large-graph",
        "scatter",
        CLIENT + "model = load()\nfutures = client.map(predict, range(9), model=model)",
        CLIENT + "model = load()\n[model_on_workers] = client.scatter([model], broadcast=True)\n"
        "futures = client.map(predict, range(9), model=model_on_workers)",
        {},
    ),
    "delayed once": (
        "large-graph",
        "delayed_once",
        "big = load()\nparts = []\nfor i in range(9):\n    parts.append(delayed(f)(big, i))",
        "big = load()\nparts = []\nbig_once = delayed(big)\nfor i in range(9):\n"
        "    parts.append(delayed(f)(big_once, i))",
        {},
    ),
    "a decorated function": (
        "serialisation-bound",
        "delayed_once",
        "@dask.delayed\ndef f(big, i): ...\n\nbig = load()\nparts = [f(big, i) for i in range(9)]",
        "@dask.delayed\ndef f(big, i): ...\n\nbig = load()\nbig_once = dask.delayed(big)\n"
        "parts = [f(big_once, i) for i in range(9)]",
        {},
    ),
    "npartitions": (
        "too-few-partitions",
        "partitions:smaller",
        "bag = db.from_sequence(items, npartitions=2)",
        "bag = db.from_sequence(items, npartitions=8)",
        {"scalescope.npartitions": 8},
    ),
    "npartitions left to the library": (
        "too-few-partitions",
        "partitions:smaller",
        "bag = db.from_sequence(items)",
        "bag = db.from_sequence(items, npartitions=8)",
        {"scalescope.npartitions": 8},
    ),
    "one chunk": (
        "too-few-partitions",
        "partitions:smaller",
        "x = da.ones((5, 1200), chunks=(5, -1))",
        "x = da.ones((5, 1200), chunks=(5, 300))",
        {},
    ),
    "the last wave": (
        "uneven-waves",
        "partitions:smaller",
        "bag = db.from_sequence(items, npartitions=5)",
        "bag = db.from_sequence(items, npartitions=16)",
        {},
    ),
    "small chunks": (
        "tiny-tasks",
        "partitions:larger",
        "x = da.random.random((40_000, 100), chunks=(10, 100))",
        "x = da.random.random((40_000, 100), chunks=(100, 100))",
        {},
    ),
    "many partitions": (
        "tiny-tasks",
        "partitions:larger",
        "bag = db.from_sequence(items, npartitions=5000)",
        "bag = db.from_sequence(items, npartitions=500)",
        {},
    ),
    "processes": (
        "gil-bound",
        "cluster_threads",
        'if __name__ == "__main__":\n'
        "    with Client(n_workers=1, threads_per_worker=4, processes=False) as c:\n        main(c)",
        'if __name__ == "__main__":\n    with Client(n_workers=4, threads_per_worker=1) as c:\n        main(c)',
        {"workers": 4, "threads_per_worker": 1},
    ),
    "processes: as many workers": (
        "gil-bound",
        "cluster_threads",
        'if __name__ == "__main__":\n    LocalCluster(n_workers=2, threads_per_worker=1, processes=False)',
        'if __name__ == "__main__":\n    LocalCluster(n_workers=2, threads_per_worker=1)',
        {},
    ),
    "threads": (
        "undersubscribed-threads",
        "cluster_threads",
        "cluster = LocalCluster(\n    n_workers=2,  # two\n    dashboard_address=None,\n)",
        "cluster = LocalCluster(\n    n_workers=2,  # two\n    dashboard_address=None,\n    threads_per_worker=8,\n)",
        {"threads_per_worker": 8},
    ),
    "workers": (
        "worker-restriction",
        "left_out:workers",
        "f = client.map(load, paths, workers=[first], pure=False)",
        "f = client.map(load, paths, pure=False)",
        {},
    ),
    "the last argument": (
        "data-locality",
        "left_out:workers",
        "f = client.map(load, paths, workers=[first])",
        "f = client.map(load, paths)",
        {},
    ),
    "store": (
        "lock-bound",
        "unlocked_store",
        "out = np.empty((9, 9))\nx.store(out, lock=True)",
        "out = np.empty((9, 9))\nx.store(out, lock=False)",
        {},
    ),
    "store by default": (
        "waiting-tasks",
        "unlocked_store",
        "out = np.memmap(path)\nda.store(x, out)",
        "out = np.memmap(path)\nda.store(x, out, lock=False)",
        {},
    ),
    "partitions: a name": (
        "too-few-partitions",
        "partitions:smaller",
        "PARTS = 2\n\ndef main():\n    return db.from_sequence(x, npartitions=PARTS)",
        "PARTS = 8\n\ndef main():\n    return db.from_sequence(x, npartitions=8)".replace(
            "npartitions=8", "npartitions=PARTS"
        ),
        {"npartitions": 8},
    ),
    "partitions: a default": (
        "too-few-partitions",
        "partitions:smaller",
        "def main(n=2):\n    return db.from_sequence(x, npartitions=n)\n\nmain()",
        "def main(n=8):\n    return db.from_sequence(x, npartitions=n)\n\nmain()",
        {"npartitions": 8},
    ),
    "chunks: the only call gives them": (
        "tiny-tasks",
        "partitions:larger",
        "def f(n, size):\n    return da.linspace(0, 1, n, chunks=size)\n\nf(900, 50)",
        "def f(n, size):\n    return da.linspace(0, 1, n, chunks=size)\n\nf(900, 500)",
        {},
    ),
    "threads: the only call gives them": (
        "undersubscribed-threads",
        "cluster_threads",
        "def made(n, threads):\n    return LocalCluster(n_workers=n, threads_per_worker=threads)\n\nmade(1, threads=2)",
        "def made(n, threads):\n    return LocalCluster(n_workers=n, threads_per_worker=threads)\n\nmade(1, threads=8)",
        {"threads_per_worker": 8},
    ),
    "Prefect: threads": (
        "undersubscribed-threads",
        "cluster_threads",
        'runner(DaskTaskRunner(cluster_kwargs={"n_workers": 1, "threads_per_worker": 2}))',
        'runner(DaskTaskRunner(cluster_kwargs={"n_workers": 1, "threads_per_worker": 8}))',
        {"threads_per_worker": 8},
    ),
    "Prefect: options that were not there": (
        "undersubscribed-threads",
        "cluster_threads",
        "runner = DaskTaskRunner()",
        'runner = DaskTaskRunner(cluster_kwargs={"threads_per_worker": 8})',
        {"threads_per_worker": 8},
    ),
    "Prefect: processes": (
        "gil-bound",
        "cluster_threads",
        'if __name__ == "__main__":\n    DaskTaskRunner(cluster_kwargs={"processes": False, "n_workers": 1})',
        'if __name__ == "__main__":\n    DaskTaskRunner(cluster_kwargs={"n_workers": 4, "threads_per_worker": 1})',
        {"workers": 4, "threads_per_worker": 1},
    ),
    "persist: where all derives from": (
        "recomputation",
        "persist_where_made",
        "sst = read()\nbasin = sst.mean()\nanomaly = basin - basin.mean()\nprint(basin.max())\nprint(anomaly.std())",
        "sst = read()\nbasin = sst.mean().persist()\n"
        "anomaly = basin - basin.mean()\nprint(basin.max())\nprint(anomaly.std())",
        {},
    ),
    "persist: before a function that computes": (
        "recomputation",
        "persist_where_made",
        "def clean(x):\n    print(len(x))\n    return x[x > 0]\n\n"
        "def main():\n    x = a + b\n    x = clean(x)\n    print(x.sum())",
        "def clean(x):\n    print(len(x))\n    return x[x > 0]\n\n"
        "def main():\n    x = (a + b).persist()\n    x = clean(x)\n    print(x.sum())",
        {},
    ),
    "futures passed on": (
        "large-graph",
        "passed_on",
        CLIENT + "raw = client.gather(client.map(load, xs))\nn = client.gather(client.map(g, raw, k=2))\nprint(n)",
        CLIENT + "raw = client.map(load, xs)\nn = client.gather(client.map(g, raw, k=2))\nprint(n)",
        {},
    ),
    "a task that waits": (
        "nested-client",
        "worker_client",
        "import distributed\ndef step(x):\n    c = get_client()\n    # all\n    return c.gather(c.map(f, x))",
        "import distributed\ndef step(x):\n    with distributed.worker_client() as c:\n"
        "        # all\n        return c.gather(c.map(f, x))",
        {},
    ),
    "joblib": (
        "results-awaited-in-loop",
        "left_out:pre_dispatch",
        "Parallel(n_jobs=-1, pre_dispatch=1)(delayed(f)(x) for x in xs)",
        "Parallel(n_jobs=-1)(delayed(f)(x) for x in xs)",
        {},
    ),
    "a scheduler of Dask's own": (
        "local-scheduler",
        "left_out:scheduler",
        'print(dask.compute(a, b, scheduler="threads"))',
        "print(dask.compute(a, b))",
        {},
    ),
    "a backend of joblib": (
        "local-scheduler",
        "left_out:backend",
        "Parallel(n_jobs=2, backend='threading')(delayed(f)(x) for x in xs)",
        "Parallel(n_jobs=2)(delayed(f)(x) for x in xs)",
        {},
    ),
    "a scheduler of Dask's own, configured": (
        "local-scheduler",
        "left_out:scheduler",
        'dask.config.set(scheduler="threads")\nprint(parts.compute())',
        "print(parts.compute())",
        {},
    ),
    "futures passed on by one name": (
        "large-graph",
        "passed_on",
        CLIENT + "x = client.gather(client.map(load, xs))\nx = client.gather(client.map(g, x))\n"
        "print(client.gather(client.map(h, x)))",
        CLIENT + "x = client.map(load, xs)\nx = client.map(g, x)\nprint(client.gather(client.map(h, x)))",
        {},
    ),
    "Prefect's futures passed on": (
        "results-awaited-in-loop",
        "passed_on",
        "@task\ndef f(x):\n    return x\n@task\ndef g(x):\n    return x\nfor x in xs:\n"
        "    pre = f.submit(x, 'a').result()\n    out.append(g.submit(pre))",
        "@task\ndef f(x):\n    return x\n@task\ndef g(x):\n    return x\nfor x in xs:\n"
        "    pre = f.submit(x, 'a')\n    out.append(g.submit(pre))",
        {},
    ),
    "coroutines in a loop": (
        "results-awaited-in-loop",
        "awaited_coroutines",
        "import asyncio\nasync def main():\n    out = []\n    for i in items:\n        f = await get(i)\n"
        "        out.append(f)\n    return out",
        "import asyncio\nasync def main():\n    out = []\n    for i in items:\n        f = get(i)\n"
        "        out.append(f)\n    out[:] = await asyncio.gather(*out)\n    return out",
        {},
    ),
    "combined by reduce": (
        "sequential-graph",
        "combined_in_pairs",
        "@delayed\ndef merge(a, b):\n    return a + b\ndef run(xs):\n    return functools.reduce(merge, xs).compute()",
        "@delayed\ndef merge(a, b):\n    return a + b\ndef run(xs):\n    pairs = list(xs)\n    while len(pairs) > 1:\n"
        "        pairs = [functools.reduce(merge, pairs[i : i + 2]) for i in range(0, len(pairs), 2)]\n"
        "    return pairs[0].compute()",
        {},
    ),
    "combined in a loop": (
        "sequential-graph",
        "combined_in_pairs",
        "total = parts[0]\nfor part in parts[1:]:\n    total = delayed(add)(total, part)",
        "import functools\ntotal = parts[0]\npairs = [total, *parts[1:]]\nwhile len(pairs) > 1:\n"
        "    pairs = [functools.reduce(delayed(add), pairs[i : i + 2]) for i in range(0, len(pairs), 2)]\n"
        "total = pairs[0]",
        {},
    ),
    "batches that are tasks": (
        "tiny-tasks",
        "batches:longer",
        "for i in range(0, len(xs), 2):\n    lazy.append(delayed(f)(xs[i : i + 2]))",
        "for i in range(0, len(xs), 20):\n    lazy.append(delayed(f)(xs[i : i + 20]))",
        {},
    ),
    "an adaptive cluster": (
        "adaptive-scaling",
        "adapt_minimum",
        "cluster.adapt(minimum=0, maximum=4)",
        "cluster.adapt(maximum=4, minimum=4)",
        {},
    ),
    "a reader of text": (
        "too-few-partitions",
        "partitions:smaller",
        "db.read_text(path).map(parse)",
        "db.read_text(path, blocksize=28_000).map(parse)",
        {},
    ),
    "a wait": (
        "skewed-tasks",
        "left_out:wait",
        CLIENT + "raw = client.map(f, xs)\nwait(raw)\nprint(client.gather(client.map(g, raw)))",
        CLIENT + "raw = client.map(f, xs)\nprint(client.gather(client.map(g, raw)))",
        {},
    ),
    "an argument that is searched": (
        "client-busy",
        "delayed_once",
        "for x in xs:\n    lazy.append(dask.delayed(f)(x, rows))",
        "rows_once = dask.delayed(rows)\nfor x in xs:\n    lazy.append(dask.delayed(f)(x, rows_once))",
        {},
    ),
    "chunks of xarray": (
        "tiny-tasks",
        "partitions:larger",
        'ds = ds.chunk({"lat": 1, "lon": 5, "time": -1})',
        'ds = ds.chunk({"lat": 4, "lon": 20, "time": -1})',
        {},
    ),
    "chunks of xarray by name": ("tiny-tasks", "partitions:larger", "ds.chunk(time=2)", "ds.chunk(time=20)", {}),
    "chunks by a name": (
        "tiny-tasks",
        "partitions:larger",
        "SIZES = (40, 20)\ncs = da.core.normalize_chunks(SIZES, shape)\nx = da.map_blocks(f, chunks=cs)",
        "SIZES = (160, 80)\ncs = da.core.normalize_chunks(SIZES, shape)\nx = da.map_blocks(f, chunks=cs)",
        {},
    ),
    "partitions: by size": (
        "too-few-partitions",
        "partitions:smaller",
        "db.from_sequence(x, partition_size=9)",
        "db.from_sequence(x, npartitions=4)",
        {},
    ),
    "coroutines": (
        "results-awaited-in-loop",
        "awaited_coroutines",
        "import asyncio\nasync def main():\n    return [await get(each) for each in items]",
        "import asyncio\nasync def main():\n    return await asyncio.gather(*[get(each) for each in items])",
        {},
    ),
    "window: two slices": (
        "few-tasks-in-flight",
        "window",
        "ac = as_completed([client.submit(fit, x) for x in todo[:2]])\nrest = iter(todo[2:])",
        "ac = as_completed([client.submit(fit, x) for x in todo[:8]])\nrest = iter(todo[8:])",
        {},
    ),
    "window: a name": (
        "few-tasks-in-flight",
        "window",
        "n = 3\nfor f in as_completed([client.submit(g, x) for x in islice(rest, n)]):\n    seq.add(f)",
        "n = 8\nfor f in as_completed([client.submit(g, x) for x in islice(rest, n)]):\n    seq.add(f)",
        {},
    ),
    "lists of items": (
        "tiny-tasks",
        "item_lists",
        CLIENT + "futures = client.map(f, range(900), pure=False)\nprint(sum(client.gather(futures)))",
        "import toolz\n"
        + CLIENT
        + "futures = client.map(lambda batch: [f(item) for item in batch], list(toolz.partition_all(10, range(900))), "
        "pure=False)\nprint(sum([result for batch in client.gather(futures) for result in batch]))",
        {},
    ),
    "lists of items, gathered at once": (
        "tiny-tasks",
        "item_lists",
        "import toolz\n" + CLIENT + "found = client.gather(client.map(f, xs))",
        "import toolz\n" + CLIENT + "found = [result for batch in client.gather(client.map(lambda batch: [f(item) "
        "for item in batch], list(toolz.partition_all(10, xs)))) for result in batch]",
        {},
    ),
    "batches": (
        "results-awaited-in-loop",
        "batches",
        "for i in range(0, len(xs), 8):\n    done += client.gather(client.map(f, xs[i : i + 8]))",
        "for i in range(0, len(xs), 64):\n    done += client.gather(client.map(f, xs[i : i + 64]))",
        {},
    ),
    "batches of a helper": (
        "results-awaited-in-loop",
        "batches",
        "def parts(xs, n):\n    for i in range(0, len(xs), n):\n        yield xs[i : i + n]\n\nall(parts(xs, 3))",
        "def parts(xs, n):\n    for i in range(0, len(xs), n):\n        yield xs[i : i + n]\n\nall(parts(xs, 64))",
        {},
    ),
    "lazy calls ahead of the wait": (
        "results-awaited-in-loop",
        "awaited_in_loop",
        "import dask\n\n@dask.delayed\ndef load(path):\n    return path\n\nfor x in xs:\n"
        "    part = load(load(x))\n    part = load(part)\n"
        "    print(dask.delayed(f)(part).compute())",
        "import dask\n\n@dask.delayed\ndef load(path):\n    return path\n\npending = []\nfor x in xs:\n"
        "    part = load(load(x))\n    part = load(part)\n"
        "    pending.append(dask.delayed(f)(part))\nfor result in dask.compute(pending)[0]:\n    print(result)",
        {},
    ),
    "window": (
        "few-tasks-in-flight",
        "window",
        "for f in as_completed([client.submit(g, x) for x in islice(rest, 3)]):\n"
        "    for x in islice(rest, 1):\n        pass",
        "for f in as_completed([client.submit(g, x) for x in islice(rest, 8)]):\n"
        "    for x in islice(rest, 1):\n        pass",
        {},
    ),
    "lists of items of calls": (
        "tiny-tasks",
        "item_lists",
        "import toolz\n" + CLIENT + "fs = [client.submit(f, a, b + 1, pure=False) for a, b in xs]\nclient.gather(fs)",
        "import toolz\n" + CLIENT + "fs = client.map(lambda batch: [f(a, b + 1) for a, b in batch], "
        "list(toolz.partition_all(10, xs)), pure=False)\n[result for batch in client.gather(fs) for result in batch]",
        {},
    ),
}


def test_a_loop_in_the_function_that_the_line_calls_is_rewritten() -> None:
    text = "def made(big):\n    return [delayed(f)(big, i) for i in range(3)]\n\ndask.compute(*made(table))\n"
    lazy = "    big_once = delayed(big)\n    return [delayed(f)(big_once, i) for i in range(3)]\n"
    assert lazy in patched("large-graph", "delayed_once", text, Place("job.py", 4, "<module>"))


@pytest.mark.parametrize("name", OTHERS)
def test_each_further_rewrite_gives_the_expected_text(name: str) -> None:
    code, rewrite, text, wanted, change = OTHERS[name]
    assert patched(code, rewrite, text + "\n", **change) == wanted + "\n"


CACHED = """
import pickle


def read(path):
    with open(path, "rb") as file:
        return pickle.load(file)


def split(pixel):
    table = read("table.pickle")
    return table[pixel]


client.map(split, range(9))
"""


def test_a_function_that_loads_a_file_in_each_task_gets_a_cache() -> None:
    found = patched("task-overhead", "cached_load", CACHED, Place("a.py", 7, "read"))
    assert "@functools.lru_cache(maxsize=8)\ndef read(path):" in found
    assert found.index("import functools") < found.index("import pickle")
    line = next(i for i, each in enumerate(CACHED.splitlines(), 1) if "table = read(" in each)
    at_its_call = Place("a.py", line, "split")
    assert patched("task-overhead", "cached_load", CACHED, at_its_call) == found


REFUSED = {
    "persist: rebound": ("recomputation", "persist", "f = a()\nf = b(f)\nf.x.compute()\nf.y.compute()", {}),
    "persist: kept already": ("recomputation", "persist", "f = a().persist()\nf.x.compute()\nf.y.compute()", {}),
    "persist: two collections": (
        "recomputation",
        "persist",
        "f = a()\ng = b()\nf.x.compute()\nf.y.compute()\ng.x.compute()\ng.y.compute()",
        {},
    ),
    "scatter: changed in the loop": (
        "large-graph",
        "scatter",
        CLIENT + "for i in range(3):\n    f = client.submit(predict, model, i)\n    model.update(f)",
        {},
    ),
    "scatter: changed by the task": (
        "large-graph",
        "scatter",
        CLIENT
        + "def predict(model, i):\n    model[i] += 1\n    return model.sum()\n\nclient.submit(predict, table, 3)",
        {},
    ),
    "delayed: changed by the task": (
        "large-graph",
        "delayed_once",
        "@delayed\ndef f(big, i):\n    big.sort()\n    return big[i]\n\nparts = [f(table, i) for i in range(3)]",
        {},
    ),
    "scatter: done already": (
        "large-graph",
        "scatter",
        CLIENT + "[model] = client.scatter([load()], broadcast=True)\nclient.submit(predict, model, 3)",
        {},
    ),
    "delayed: done already": (
        "large-graph",
        "delayed_once",
        "big = delayed(load())\nparts = [delayed(f)(big, i) for i in range(3)]",
        {},
    ),
    "scatter: two arguments": ("large-graph", "scatter", CLIENT + "client.submit(predict, model, other)", {}),
    "scatter: an option of the client": ("large-graph", "scatter", CLIENT + "client.submit(f, 3, pure=fresh)", {}),
    "scatter: a constant": ("large-graph", "scatter", CLIENT + "client.submit(f, 3, copy=True)", {}),
    "scatter: no client": ("large-graph", "scatter", "pool.submit(predict, model)", {}),
    "delayed: no loop": ("large-graph", "delayed_once", "x = delayed(f)(big)", {}),
    "partitions: enough": ("too-few-partitions", "partitions:smaller", "db.from_sequence(x, npartitions=99)", {}),
    "partitions: a variable": ("too-few-partitions", "partitions:smaller", "db.from_sequence(x, npartitions=n)", {}),
    "partitions: a number of something else, too": (
        "too-few-partitions",
        "partitions:smaller",
        "n = 2\nx = list(range(n))\ndb.from_sequence(x, npartitions=n)",
        {},
    ),
    "partitions: calls that differ": (
        "too-few-partitions",
        "partitions:smaller",
        "def f(n):\n    return db.from_sequence(x, npartitions=n)\n\nf(2)\nf(3)",
        {},
    ),
    "chunks: unknown shape": ("too-few-partitions", "partitions:smaller", "da.from_array(x, chunks=-1)", {}),
    "processes: no main guard": (
        "gil-bound",
        "cluster_threads",
        "client = Client(processes=False)",
        {"workers": 4, "threads_per_worker": 1},
    ),
    "Prefect: options elsewhere": (
        "undersubscribed-threads",
        "cluster_threads",
        "DaskTaskRunner(cluster_kwargs=options)",
        {"threads_per_worker": 8},
    ),
    "threads: options elsewhere": (
        "undersubscribed-threads",
        "cluster_threads",
        "cluster = LocalCluster(**options)",
        {"threads_per_worker": 8},
    ),
    "workers: resources": ("worker-restriction", "left_out:workers", "c.map(f, x, workers=w, resources=r)", {}),
    "workers: two calls": (
        "worker-restriction",
        "left_out:workers",
        "c.map(f, x, workers=w)\nc.map(g, x, workers=w)",
        {},
    ),
    "store: unknown target": ("lock-bound", "unlocked_store", "out = h5py.File(p)\nx.store(out, lock=True)", {}),
    "store: a lock of its own": ("lock-bound", "unlocked_store", "out = np.empty(3)\nx.store(out, lock=mine)", {}),
    "persist: one value": ("recomputation", "persist_where_made", "x = read()\nprint(x.mean())", {}),
    "persist: a list": ("recomputation", "persist_where_made", "x = []\nprint(x)\nprint(len(x))", {}),
    "passed on: printed, too": (
        "large-graph",
        "passed_on",
        CLIENT + "raw = client.gather(client.map(f, xs))\nprint(raw[0])\nclient.gather(client.map(g, raw))",
        {},
    ),
    "passed on: a part of it": (
        "large-graph",
        "passed_on",
        CLIENT + "raw = client.gather(client.map(f, xs))\nclient.gather(client.map(g, raw[1:]))",
        {},
    ),
    "a wait for files": (
        "skewed-tasks",
        "left_out:wait",
        CLIENT + "raw = client.map(write, xs)\nwait(raw)\nprint(client.gather(client.map(read, xs)))",
        {},
    ),
    "passed on: bound twice": (
        "large-graph",
        "passed_on",
        CLIENT + "raw = client.gather(client.map(f, xs))\nif a:\n    raw = client.gather(client.map(g, raw))\n"
        "client.map(g, raw)",
        {},
    ),
    "a client at an address": ("nested-client", "worker_client", "def f():\n    c = get_client(a)\n    c.map(g)", {}),
    "chunks of xarray: auto": ("tiny-tasks", "partitions:larger", "ds.chunk('auto')", {}),
    "coroutines: two in each round": (
        "results-awaited-in-loop",
        "awaited_coroutines",
        "async def main():\n    return [await (await get(each)).read() for each in items]",
        {},
    ),
    "window: slices of two lists": (
        "few-tasks-in-flight",
        "window",
        "ac = as_completed([client.submit(fit, x) for x in todo[:2]])\nrest = iter(others[2:])",
        {},
    ),
    "window: in the loop": (
        "few-tasks-in-flight",
        "window",
        "for f in as_completed(fs):\n    for x in islice(rest, 1):\n        pass",
        {},
    ),
    "batches: a number of workers, too": (
        "results-awaited-in-loop",
        "batches",
        "n = 4\nclient = Client(n_workers=n)\nfor i in range(0, len(xs), n):\n    client.map(f, xs[i : i + n])",
        {},
    ),
    "batches: not of a list": (
        "results-awaited-in-loop",
        "batches",
        "for i in range(0, 90, 3):\n    client.submit(f, i).result()",
        {},
    ),
    "lists of items: futures that something else uses": (
        "tiny-tasks",
        "item_lists",
        CLIENT + "futures = client.map(f, xs)\nwait(futures)\nclient.gather(futures)",
        {},
    ),
    "lists of items: arguments of the task": (
        "tiny-tasks",
        "item_lists",
        CLIENT + "client.gather(client.map(f, xs, seed=3))",
        {},
    ),
    "lists of items: a bag": ("tiny-tasks", "item_lists", "bag.map(f).compute()", {}),
    "lists of items: an argument of all": (
        *("tiny-tasks", "item_lists", CLIENT + "client.gather([client.submit(f, x, y) for x in xs])"),
        {},
    ),
    "lists of items: keys of their own": (
        *("tiny-tasks", "item_lists", CLIENT + "client.gather([client.submit(f, x, key=x) for x in xs])"),
        {},
    ),
}


GIVEN = {
    "more partitions": (
        "too-few-partitions",
        "partitions:smaller",
        "def run(client, n):\n    return db.from_sequence(x, npartitions=n)",
        8,
    ),
    "fewer partitions": (
        "tiny-tasks",
        "partitions:larger",
        "def run(client, n=4000):\n    return db.from_sequence(x, npartitions=n)",
        1,
    ),
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_number_that_a_parameter_of_the_function_gives_becomes_a_setting(name: str) -> None:
    code, rewrite, text, wanted = GIVEN[name]
    answer = tried(code, rewrite, text, npartitions=8)
    assert isinstance(answer, Setting)
    assert (answer.function, answer.name, answer.change(2)) == ("run", "n", wanted)


@pytest.mark.parametrize("name", REFUSED)
def test_a_rewrite_that_does_not_apply_gives_a_reason(name: str) -> None:
    code, rewrite, text, change = REFUSED[name]
    answer = tried(code, rewrite, text, **change)
    assert isinstance(answer, NotHere)
    assert answer.reason


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("table[pixel]", "table.update(pixel)"),
        ("return table[pixel]", "table[pixel] = 1"),
        ("return table[pixel]", "table[pixel].append(1)"),
        ("return table[pixel]", "table.get(pixel).append(1)"),
        ("return table[pixel]", "return table"),
        ('open(path, "rb")', 'open(path, "r+")'),
        ("return pickle.load(file)", "log(path)\n        return pickle.load(file)"),
        ("client.map(split", "client.map(read"),
    ],
)
def test_a_function_with_side_effects_or_a_changed_result_gets_no_cache(old: str, new: str) -> None:
    assert old in CACHED
    assert isinstance(tried("task-overhead", "cached_load", CACHED.replace(old, new), Place("a.py", 7)), NotHere)


ROUND = Place("job.py", 3)
ROUNDS = {
    "lines": (
        """
        # all
        for n in sizes:
            cluster = LocalCluster(n_workers=2)
            client = Client(cluster)
            print(total(client, n))
            client.close()
            cluster.close()
        """,
        """
        # all
        cluster = LocalCluster(n_workers=2)
        client = Client(cluster)
        for n in sizes:
            print(total(client, n))
        client.close()
        cluster.close()
        """,
    ),
    "a block": (
        """
        while more():
            with Client(n_workers=2) as client:
                print(total(client))
            print("next")
        """,
        """
        with Client(n_workers=2) as client:
            while more():
                print(total(client))
                print("next")
        """,
    ),
}


@pytest.mark.parametrize("name", ROUNDS)
def test_a_cluster_is_made_before_the_loop_and_closed_after_it(name: str) -> None:
    text, expected = ROUNDS[name]
    assert patched("cluster-in-each-round", "cluster_before_loop", text, ROUND) == dedent(expected)


@pytest.mark.parametrize(
    "text",
    [
        "for n in sizes:\n    pass\n    client = Client(n_workers=n)\n    client.close()",
        "for n in sizes:\n    m = n + 1\n    with Client(n_workers=m) as c:\n        f(c)",
        "def f():\n    # one\n    with Client() as c:\n        g(c)\nfor _ in range(3):\n    f()",
        "for n in sizes:\n    f()\n    client = Client()",
        "def f():\n  for n in sizes:\n    client = Client()\n    client.close()\n    return n",
    ],
)
def test_a_cluster_that_differs_or_is_made_elsewhere_stays_in_the_loop(text: str) -> None:
    assert isinstance(tried("cluster-in-each-round", "cluster_before_loop", text, ROUND), NotHere)
