"""What scripts can notice of the process that runs them: each behaviour is one script.

A script runs by `python` and by `scalescope run`, and must not tell them apart (`test_behaviours.py`). Its text is
dedented. What two runs of plain Python print differently (pids, ports, addresses of memory, times) is not printed.
"""

from __future__ import annotations

import io
import signal
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from textwrap import dedent

Content = str | bytes


@dataclass(frozen=True)
class Behaviour:
    name: str
    source: Content  # of the script; "" where `files` hold it
    arguments: tuple[str, ...] = ()
    files: Mapping[str, Content] = field(default_factory=dict)  # by their path in the folder of the run
    links: Mapping[str, str] = field(default_factory=dict)  # symbolic links and where they lead
    script: str = "theirs.py"  # as it is given on the command line, from the folder of the run; {folder} is that folder
    module: str = ""  # runs by -m instead of a script
    environment: Mapping[str, str] = field(default_factory=dict)  # {folder} is the folder of the run
    stdin: str = ""  # on a terminal, it is typed once the script has printed "ready"
    signal: int = 0  # sent from outside once the script has printed "ready"
    to_group: bool = False  # The signal goes to all processes of the group, as Ctrl-C on a terminal does.
    launcher: tuple[str, ...] = ()  # a command that starts the rest of its arguments
    terminal: bool = False  # Its streams are a terminal: all that appears there is compared as its stderr.
    judged: bool = False  # It makes a cluster that can be diagnosed.
    thorough: bool = False  # a variant of another


def _zipped(files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), dedent(text))
    return packed.getvalue()


def _shell(line: str) -> tuple[str, ...]:
    """A launcher; in `line`, "$@" is what it starts."""
    return ("bash", "-c", line, "bash")


QUIET = """
import logging

logging.disable()  # What is logged while a cluster closes depends on what has been released by then.
"""
DASK = """
from distributed import Client, LocalCluster

FEW = dict(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0")
"""


def _dask(
    name: str, source: str, *, judged: bool = True, thorough: bool = False, signal: int = 0, before: str = ""
) -> Behaviour:
    """A script that begins with `before`, then imports Dask."""
    text = dedent(before).lstrip("\n") + DASK + dedent(source)
    return Behaviour(name, text, judged=judged, thorough=thorough, signal=signal)


SCRIPT = (
    Behaviour(
        "file-is-absolute",
        """
        import os
        import tempfile
        from pathlib import Path

        os.chdir(tempfile.gettempdir())
        print(__file__, Path(__file__).with_name("beside.txt").read_text())
        """,
        files={"beside.txt": "beside"},
    ),
    Behaviour(
        "argv",
        "import sys; print(sys.argv)",
        arguments=("--json", "-e", "prod", "--require", "a b", "", "-m", "--", "ünï"),
    ),
    Behaviour("orig-argv", "import sys; print(sys.orig_argv)", arguments=("--debug", "x"), thorough=True),
    Behaviour("command-line-of-the-process", "print(open('/proc/self/cmdline').read().split('\\0'))", arguments=("x",)),
    Behaviour("sys-path", "import sys; print(sys.path)"),
    Behaviour(
        "executable", "import sys; print(sys.executable, sys.prefix, sys.base_prefix, sys.exec_prefix)", thorough=True
    ),
    Behaviour(
        "flags",
        """
        import sys

        print(sys.flags, sys.warnoptions, sys.dont_write_bytecode, sys._xoptions, sys.pycache_prefix)
        """,
        thorough=True,
    ),
    Behaviour(
        "variables-of-main",
        """
        import builtins

        print(sorted(vars()))
        print(__name__, __spec__, __package__, __doc__, __builtins__ is builtins, type(__loader__))
        print(globals().get("__cached__", "none"), globals().get("__annotations__", "none"))
        """,
    ),
    Behaviour(
        "annotations-are-no-strings",
        """
        import dataclasses
        import typing

        @dataclasses.dataclass
        class Row:
            number: int

        def function():
            class Local: ...

            def takes(local: Local) -> "Row": ...

            return takes

        print(dataclasses.fields(Row)[0].type is int, function().__annotations__["local"].__qualname__)
        print(typing.get_type_hints(Row))
        """,
    ),
    Behaviour(
        "pickle-of-a-class-of-main",
        """
        import pickle
        import subprocess
        import sys

        class Row: ...

        kept = pickle.dumps(Row())
        print(kept, type(pickle.loads(kept)) is Row)
        load = f"import pickle\\ntry: pickle.loads({kept})\\nexcept AttributeError as error: print(error)"
        subprocess.run([sys.executable, "-c", load], check=True)
        """,
    ),
    Behaviour(
        "own-source",
        """
        import inspect
        import linecache

        def function():
            return 1  # one

        print(inspect.getsource(function), inspect.getsourcefile(function), linecache.getline(__file__, 5))
        """,
        thorough=True,
    ),
    Behaviour(
        "link-to-a-script",
        "",
        script="link.py",
        links={"link.py": "jobs/real.py"},
        files={
            "jobs/real.py": "import beside, sys; print(__file__, sys.argv, beside.__file__)",
            "jobs/beside.py": "",
        },
        thorough=True,
    ),
    Behaviour(
        "path-with-spaces-and-umlauts",
        "import sys; print(__file__, sys.argv, sys.path[0]); raise ValueError('raised')",
        script="my jöbs/it is.py",
        thorough=True,
    ),
    Behaviour("script-in-a-folder", "import sys; print(__file__, sys.argv[0], sys.path[0])", script="./jobs/theirs.py"),
    Behaviour("script-without-suffix", "import sys; print(__file__, sys.argv[0])", script="theirs", thorough=True),
    Behaviour(
        "folder-with-main-as-a-script",
        "",
        script="jobs",
        files={
            "jobs/__main__.py": """
                import beside, sys

                print(__name__, __file__, sys.argv, sys.path[0], repr(__package__), __spec__.name)
                raise ValueError("raised")
                """,
            "jobs/beside.py": "",
        },
    ),
    Behaviour(
        "zipped-application",
        "",
        script="jobs.pyz",
        files={
            "jobs.pyz": _zipped(
                {"__main__.py": "import beside, sys\nprint(__file__, sys.argv, beside.__file__)", "beside.py": ""}
            )
        },
    ),
    Behaviour("missing-script", "", script="missing.py"),
    Behaviour("syntax-error", "first = 1\nsecond = = 2\n"),
    Behaviour("null-byte", b"print('first')\0\n", thorough=True),
    Behaviour("source-that-is-not-utf-8", "print(ascii('é'))\n".encode("latin-1"), thorough=True),
    Behaviour(
        "unittest",
        """
        import unittest

        class Doubles(unittest.TestCase):
            def test_right(self):
                self.assertEqual(2 * 2, 4)

            def test_wrong(self):
                self.assertEqual(2 * 2, 5)

        unittest.main()
        """,
        arguments=("--verbose",),
        thorough=True,
    ),
    Behaviour(
        "debugger",
        """
        def function(number):
            breakpoint()
            return number

        print(function(1))
        """,
        stdin="where\np number\nup\ncontinue\n",
        thorough=True,
    ),
)

MODULE = (
    Behaviour(
        "package-by-m",
        "",
        module="etl",
        arguments=("--json", "20"),
        files={
            "etl/__init__.py": "print('package', __name__)",
            "etl/__main__.py": """
                import sys

                from . import steps

                print(__name__, __file__, __package__, __spec__.name, sys.argv, sys.path[0], steps.__name__)
                """,
            "etl/steps.py": "",
        },
    ),
    Behaviour(
        "module-of-a-package-by-m",
        "",
        module="etl.steps",
        arguments=("-m", "x"),
        files={
            "etl/__init__.py": "",
            "etl/steps.py": """
                import sys

                print(sorted(vars()), __name__, __file__, __package__, __spec__.name, sys.argv, sys.path[0])
                """,
        },
        thorough=True,
    ),
    Behaviour(
        "traceback-of-m",
        "",
        module="etl.steps",
        files={
            "etl/__init__.py": "",
            "etl/steps.py": "def function():\n    raise ValueError('raised')\n\nfunction()\n",
        },
    ),
    Behaviour("missing-module-by-m", "", module="missing.module"),
    Behaviour("standard-module-by-m", "", module="json.tool", stdin='{"first": [1, 2]}', thorough=True),
    Behaviour(
        "tests-by-m",
        "",
        module="pytest",
        arguments=("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_theirs.py"),
        files={"test_theirs.py": "def test_right(): ...\ndef test_wrong(): assert 2 * 2 == 5"},
        thorough=True,
    ),
    Behaviour(
        "spawned-processes-of-m",
        "",
        module="etl.steps",
        files={
            "etl/__init__.py": "",
            "etl/steps.py": """
                import multiprocessing

                def double(number):
                    return 2 * number, __name__

                if __name__ == "__main__":
                    with multiprocessing.get_context("spawn").Pool(1) as pool:
                        print(pool.map(double, range(3)))
                """,
        },
        thorough=True,
    ),
)

RAISING_CUSTOMS = """
import sys

if sys.orig_argv[1] == "theirs.py":  # It leaves the command that runs the script alone.
    raise ValueError("raised")
"""

ENVIRONMENT = (
    Behaviour("variables-without-pythonpath", "import os; print(sorted(os.environ.items()))"),
    Behaviour(
        "variables-with-pythonpath",
        "import os, sys; print(sorted(os.environ.items()), sys.path)",
        environment={"PYTHONPATH": "lib:{folder}/other"},
    ),
    Behaviour(
        "safe-path", "import sys; print(sys.path, sys.flags)", environment={"PYTHONSAFEPATH": "1"}, thorough=True
    ),
    Behaviour(
        "warnings-as-errors",
        "import sys, warnings; print(sys.warnoptions); warnings.warn('raised')",
        environment={"PYTHONWARNINGS": "error"},
    ),
    Behaviour(
        "development-mode",
        "import sys; print(sys.flags.dev_mode, sys.warnoptions); open('theirs.py'); raise ValueError",
        environment={"PYTHONDEVMODE": "1"},
        thorough=True,
    ),
    Behaviour(
        "optimised",
        '"""Goes."""\nassert False\nprint(__doc__, __debug__)',
        environment={"PYTHONOPTIMIZE": "2"},
        thorough=True,
    ),
    Behaviour(
        "encoding-of-streams",
        "import sys; print(sys.stdout.encoding, sys.stdout.errors); print('\\u20ac')",
        environment={"PYTHONIOENCODING": "latin-1"},
        thorough=True,
    ),
    Behaviour(
        "unbuffered",
        "import os, sys; print(sys.stdout.write_through); print('kept'); os._exit(7)",
        environment={"PYTHONUNBUFFERED": "1"},
        thorough=True,
    ),
    Behaviour("bytecode-of-modules", "import beside", files={"beside.py": ""}, thorough=True),
    Behaviour(
        "own-sitecustomize",
        """
        import os
        import sitecustomize

        print(sitecustomize.__file__, sitecustomize.__name__, os.times_customized)
        """,
        files={
            "lib/sitecustomize.py": "import os\nos.times_customized = getattr(os, 'times_customized', 0) + 1\n",
        },
        environment={"PYTHONPATH": "lib"},
    ),
    Behaviour(
        "own-sitecustomize-that-raises",
        "import sitecustomize",
        files={"lib/sitecustomize.py": RAISING_CUSTOMS},
        environment={"PYTHONPATH": "lib"},
        thorough=True,
    ),
    Behaviour(
        "own-usercustomize",
        """
        import os
        import site

        print(site.ENABLE_USER_SITE, getattr(os, "times_customized", 0))
        """,
        files={"lib/usercustomize.py": "import os\nos.times_customized = getattr(os, 'times_customized', 0) + 1\n"},
        environment={"PYTHONPATH": "lib"},
        thorough=True,
    ),
    Behaviour("no-sitecustomize", "import sitecustomize", thorough=True),
    Behaviour(
        "loaded-modules",
        """
        import sys

        print(sorted(name for name in sys.modules if name.partition(".")[0] not in sys.stdlib_module_names))
        """,
    ),
    Behaviour(
        "scalescope-stays-as-it-is",
        "import importlib.util; print(importlib.util.find_spec('scalescope'))",
        thorough=True,
    ),
    Behaviour(
        "distributed-is-found-where-it-is",
        """
        import importlib.util
        import sys

        spec = importlib.util.find_spec("distributed")
        print(spec.name, spec.origin, type(spec.loader), spec.submodule_search_locations, "distributed" in sys.modules)
        """,
    ),
    Behaviour(
        "open-descriptors",
        """
        import os

        print(sorted(int(name) for name in os.listdir("/proc/self/fd")))
        """,
    ),
    Behaviour(
        "closes-all-descriptors",
        """
        import os

        os.closerange(3, 4096)
        print(os.open("theirs.py", os.O_RDONLY))
        """,
        thorough=True,
    ),
    Behaviour(
        "threads-and-children-at-the-start",
        """
        import os
        import threading

        print(threading.enumerate()[1:], len(os.listdir("/proc/self/task")))
        os.wait()
        """,
    ),
)

SHADOWS = "abc ast bisect calendar collections csv dis enum heapq inspect json logging pickle queue random re sqlite3"
SHADOWS += " signal socket string struct tempfile threading token traceback types typing uuid weakref zlib"

MODULES = (
    Behaviour(
        "own-module-with-a-standard-name",
        "import json\nfrom calendar import mine\nprint(json.mine, mine)",
        files={"json.py": "mine = 'json'", "calendar.py": "mine = 'calendar'"},
    ),
    Behaviour(
        "own-modules-with-any-standard-name",
        f"""
        import importlib

        for name in {SHADOWS.split()}:
            print(name, importlib.import_module(name).__file__)
        """,
        files={f"{name}.py": "" for name in SHADOWS.split()},
    ),
    Behaviour(
        "own-modules-with-names-of-ours",
        """
        import cli, guest, model, own_code, record, rich, run, startup, typer

        print(cli.mine, guest.mine, model.mine, own_code.mine, record.mine)
        print(rich.mine, run.mine, startup.mine, typer.mine)
        """,
        files={
            f"{name}.py": f"mine = '{name}'"
            for name in ["cli", "guest", "model", "own_code", "record", "rich", "run", "startup", "typer"]
        },
        thorough=True,
    ),
    Behaviour(
        "own-module-on-pythonpath-with-the-name-of-a-package",
        "import rich, typing_extensions; print(rich.mine, typing_extensions.mine)",
        files={f"lib/{name}.py": f"mine = '{name}'" for name in ("rich", "typing_extensions")},
        environment={"PYTHONPATH": "lib"},
        thorough=True,
    ),
    Behaviour(
        "own-finder-of-modules",
        """
        import sys

        class Finder:
            asked = []

            def find_spec(self, name, path=None, target=None):
                self.asked.append(name)

        sys.meta_path.insert(0, Finder())
        import beside
        import other
        print(Finder.asked)
        """,
        files={"beside.py": "", "other.py": ""},
        thorough=True,
    ),
    Behaviour(
        "own-import-function",
        """
        import builtins

        original, asked = builtins.__import__, []

        def importing(name, *others):
            asked.append(name)
            return original(name, *others)

        print(original)
        builtins.__import__ = importing
        import beside
        print(asked)
        """,
        files={"beside.py": "import inner", "inner.py": ""},
    ),
    Behaviour(
        "pandas-blocked",
        """
        import sys

        sys.modules["pandas"] = None
        import dask.dataframe
        """,
        thorough=True,
    ),
)

ENDINGS = (
    Behaviour("exit-with-a-number", "import sys; print('said'); sys.exit(3)"),
    Behaviour("exit-with-a-text", "import sys; sys.exit('enough')", thorough=True),
    Behaviour("exit-without-clearing", "import atexit, os; atexit.register(print, 'no'); print('lost'); os._exit(7)"),
    Behaviour(
        "uncaught-exception",
        """
        import steps

        def main(number):
            steps.divide(number)

        print("first")
        main(1)
        """,
        files={"steps.py": "def divide(number):\n    return number / 0\n"},
    ),
    Behaviour(
        "exception-with-cause-and-notes",
        """
        def parse(text):
            try:
                return int(text)
            except ValueError as error:
                error.add_note("a note")
                raise RuntimeError(f"no number: {text}") from error

        try:
            parse("x")
        except RuntimeError:
            raise KeyError("context")
        """,
        thorough=True,
    ),
    Behaviour("too-deep-recursion", "def deeper(n):\n    return deeper(n + 1)\n\ndeeper(0)", thorough=True),
    Behaviour(
        "exception-that-cannot-be-told",
        """
        class Untold(Exception):
            def __str__(self):
                raise ValueError("raised")

        raise Untold
        """,
        thorough=True,
    ),
    Behaviour(
        "exception-in-a-thread",
        """
        import threading

        def divide():
            1 / 0

        thread = threading.Thread(target=divide, name="divides")
        thread.start()
        thread.join()
        """,
    ),
    Behaviour(
        "exception-in-an-exit-handler",
        """
        import atexit

        @atexit.register
        def divide():
            1 / 0
        """,
        thorough=True,
    ),
    Behaviour(
        "exception-in-a-finaliser",
        """
        class Kept:
            def __del__(self):
                1 / 0

        kept = Kept()
        del kept
        last = Kept()
        """,
        thorough=True,
    ),
    Behaviour("keyboard-interrupt-raised", "def main():\n    raise KeyboardInterrupt\n\nmain()", thorough=True),
    Behaviour(
        "own-excepthook",
        """
        import sys

        print(sys.excepthook is sys.__excepthook__)

        def told(kind, error, trace):
            print(kind, error, trace.tb_lineno, trace.tb_next, file=sys.stderr)

        sys.excepthook = told
        raise ValueError("raised")
        """,
        thorough=True,
    ),
    Behaviour(
        "order-of-exit-handlers",
        """
        import atexit
        import sys

        atexit.register(print, "first registered")
        atexit.register(print, "second registered", file=sys.stderr)
        print("ends")
        """,
    ),
    Behaviour(
        "thread-that-outlives-main",
        """
        import atexit
        import threading
        import time

        def late():
            time.sleep(0.2)
            print("late", threading.main_thread().is_alive())

        atexit.register(print, "exit handler")
        threading.Thread(target=late).start()
        print("main ends")
        """,
    ),
    Behaviour(
        "process-that-outlives-it",
        """
        import subprocess

        subprocess.Popen(["sleep", "100"])
        print("ends")
        """,
    ),
    Behaviour(
        "another-program-in-its-place",
        """
        import os
        import sys

        print("first", flush=True)
        os.execv(sys.executable, [sys.executable, "-c", "import sys; print(sys.argv, sys.path); sys.exit(4)", "x"])
        """,
        thorough=True,
    ),
)

ITSELF = "import os, signal; print('before', flush=True); os.kill(os.getpid(), signal.{}); print('after')"
WAITS = """
import time

def wait():
    print("ready", flush=True)
    time.sleep(30)

"""

SIGNALS = (
    Behaviour(
        "handlers-of-signals",
        """
        import signal

        for number in sorted(signal.valid_signals()):
            handler = signal.getsignal(number)
            print(number, getattr(handler, "__name__", handler))
        print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        """,
    ),
    Behaviour(
        "ignored-signals-stay-ignored",
        "import signal; print(*map(signal.getsignal, (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)))",
        launcher=_shell('trap "" HUP INT QUIT; exec "$@"'),
        thorough=True,
    ),
    Behaviour("terminates-itself", ITSELF.format("SIGTERM")),
    Behaviour("interrupts-itself", ITSELF.format("SIGINT"), thorough=True),
    Behaviour("kills-itself", ITSELF.format("SIGKILL"), thorough=True),
    Behaviour(
        "crashes",
        """
        import faulthandler
        import os
        import signal

        faulthandler.enable()

        def crash():
            os.kill(os.getpid(), signal.SIGSEGV)

        crash()
        """,
        launcher=_shell('ulimit -c 0; exec "$@"'),
    ),
    Behaviour("interrupted-from-outside", WAITS + "wait()", signal=signal.SIGINT),
    Behaviour("interrupted-with-its-group", WAITS + "wait()", signal=signal.SIGINT, to_group=True, thorough=True),
    Behaviour(
        "interrupted-once",
        WAITS
        + """
try:
    wait()
except KeyboardInterrupt:
    print("cleans up")
    time.sleep(0.3)
print("goes on")
raise SystemExit(6)
""",
        signal=signal.SIGINT,
        to_group=True,
    ),
    Behaviour("terminated-from-outside", WAITS + "wait()", signal=signal.SIGTERM),
    Behaviour(
        "own-handler-of-a-termination-from-outside",
        "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n" + WAITS + "wait()",
        signal=signal.SIGTERM,
    ),
    Behaviour(
        "own-handler-of-a-signal-of-its-own-from-outside",
        "import signal, sys\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit('checkpoint'))\n" + WAITS + "wait()",
        signal=signal.SIGUSR1,
        thorough=True,
    ),
    Behaviour(
        "killed-from-outside",
        """
        import time

        print("ready", flush=True)
        time.sleep(0.5)
        open("lives.txt", "w")
        """,
        signal=signal.SIGKILL,
    ),
    Behaviour(
        "without-hang-up",
        "import signal; print(signal.getsignal(signal.SIGHUP))\n" + WAITS.replace("30", "0.3") + "wait()",
        launcher=("nohup",),
        signal=signal.SIGHUP,
        thorough=True,
    ),
)

STREAMS = (
    Behaviour("input", "print(input('name? '), input())", stdin="first\nsecond\n"),
    Behaviour("input-at-the-end", "input()", thorough=True),
    Behaviour(
        "input-that-it-leaves-goes-to-the-next-command",
        "print('reads nothing', flush=True)",
        stdin="first\nsecond\n",
        launcher=_shell('"$@"; cat'),
    ),
    Behaviour("no-stdin", "import sys; print(sys.stdin)", launcher=_shell('exec "$@" <&-'), thorough=True),
    Behaviour(
        "no-stdout", "import sys; print('lost'); print(sys.stdout, file=sys.stderr)", launcher=_shell('exec "$@" >&-')
    ),
    Behaviour(
        "no-stderr", "import sys; print(sys.stderr); raise ValueError", launcher=_shell('exec "$@" 2>&-'), thorough=True
    ),
    Behaviour(
        "bytes-that-are-not-utf-8",
        "import sys; sys.stdout.buffer.write(b'\\xff\\xfe\\n'); sys.stderr.buffer.write(b'\\xff\\n')",
        thorough=True,
    ),
    Behaviour(
        "streams",
        """
        import sys

        for stream in (sys.stdin, sys.stdout, sys.stderr):
            print(type(stream), stream.name, stream.mode, stream.encoding, stream.errors, stream.line_buffering)
            print(stream.isatty(), stream.write_through, stream.fileno())
        print(sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__)
        """,
    ),
    Behaviour(
        "order-of-streams",
        """
        import sys

        for number in range(20000):
            print("out", number)
            if number % 1000 == 0:
                print("err", number, file=sys.stderr)
        """,
        launcher=_shell('exec "$@" >&2'),
        thorough=True,
    ),
    Behaviour("broken-pipe", "print('x' * 1_000_000)", launcher=_shell('set -o pipefail; "$@" | head -c 1')),
    Behaviour("full-disk", "print('lost')", launcher=_shell('exec "$@" >/dev/full'), thorough=True),
    Behaviour(
        "stderr-closed-by-the-script",
        "import os, sys; print('last', file=sys.stderr); sys.stderr.close(); os.close(2); sys.exit(3)",
        thorough=True,
    ),
    Behaviour(
        "terminal",
        """
        import os
        import sys

        print([stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)], sys.stdout.line_buffering)
        print(os.ttyname(0) == os.ttyname(2), os.tcgetpgrp(0) == os.getpgrp(), os.get_terminal_size())
        print(input("ready? "))
        print("said", file=sys.stderr)
        """,
        terminal=True,
        stdin="mine\n",
    ),
    Behaviour("interrupted-on-a-terminal", WAITS + "wait()", terminal=True, stdin="\x03"),
)

INTROSPECTION = (
    Behaviour("printed-stack", "import traceback\ndef f():\n    traceback.print_stack()\n\nf()"),
    Behaviour(
        "outermost-frame", "import inspect, sys; print(len(inspect.stack()), sys._getframe().f_back)", thorough=True
    ),
    Behaviour(
        "dumped-stack",
        """
        import faulthandler

        print(faulthandler.is_enabled())

        def function():
            faulthandler.dump_traceback()

        function()
        """,
        thorough=True,
    ),
    Behaviour(
        "own-trace-function",
        """
        import sys
        import threading

        print(sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile())
        lines = []

        def traced(frame, event, argument):
            lines.append((event, frame.f_code.co_name, frame.f_lineno))
            return traced

        def function():
            number = 1
            return number

        sys.settrace(traced)
        function()
        sys.settrace(None)
        print(lines)
        """,
    ),
    Behaviour(
        "own-profile-function",
        """
        import sys

        calls = []
        sys.setprofile(lambda frame, event, argument: calls.append((event, frame.f_code.co_name)))
        sorted([2, 1], key=lambda number: number)
        sys.setprofile(None)
        print(calls)
        """,
        thorough=True,
    ),
    Behaviour(
        "state-of-the-interpreter",
        """
        import builtins
        import contextvars
        import io
        import sys
        import tracemalloc
        import warnings

        monitoring = getattr(sys, "monitoring", None)
        print(monitoring and [monitoring.get_tool(number) for number in range(6)])
        print(sorted(vars(builtins)), print.__module__, open is io.open)
        print(len(contextvars.copy_context()), sys.getrecursionlimit(), tracemalloc.is_tracing())
        print([getattr(hook, "__qualname__", hook) for hook in sys.path_hooks])
        print(warnings.filters, warnings.showwarning.__module__)
        """,
    ),
    Behaviour(
        "garbage-collection",
        "import gc; print(gc.isenabled(), gc.get_threshold(), gc.callbacks, gc.get_debug())",
        thorough=True,
    ),
    Behaviour(
        "logging-at-the-start",
        """
        import logging

        print(logging.root.handlers, logging.root.level, sorted(logging.root.manager.loggerDict))
        logging.warning("by the last resort")
        logging.basicConfig(level=logging.INFO)
        logging.getLogger("mine").info("said")
        """,
    ),
)

WARNINGS = (
    Behaviour(
        "warning-of-the-script",
        """
        import warnings

        def careless():
            warnings.warn("beware")

        careless()
        careless()
        """,
    ),
    Behaviour(
        "warning-at-the-caller",
        """
        import steps

        steps.careless()
        """,
        files={"steps.py": "import warnings\n\ndef careless():\n    warnings.warn('beware', stacklevel=2)\n"},
        thorough=True,
    ),
    Behaviour("deprecation-in-main", "import warnings; warnings.warn('old', DeprecationWarning)"),
    Behaviour(
        "warning-as-an-error", "import warnings; warnings.simplefilter('error'); warnings.warn('beware')", thorough=True
    ),
)

DOUBLE = """
import os
import sys

def double(number):
    return 2 * number

"""

PROCESSES = (
    Behaviour(
        "forked-process-that-ends-as-a-script-does",
        """
        import atexit
        import os
        import sys

        atexit.register(print, "exit handler")
        child = os.fork()
        if child == 0:
            print("child")
            sys.exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
    ),
    Behaviour(
        "spawned-processes",
        DOUBLE
        + """
import multiprocessing

print("imported", __name__, sys.argv, flush=True)
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(double, range(3)))
""",
        arguments=("x",),
    ),
    Behaviour(
        "process-of-a-fork-server",
        DOUBLE
        + """
import multiprocessing

if __name__ == "__main__":
    with multiprocessing.get_context("forkserver").Pool(1) as pool:
        print(pool.map(double, range(3)))
""",
        thorough=True,
    ),
    Behaviour(
        "pool-of-processes",
        DOUBLE
        + """
from concurrent.futures import ProcessPoolExecutor

if __name__ == "__main__":
    with ProcessPoolExecutor(1) as pool:
        print(list(pool.map(double, range(3))))
        pool.submit(divmod, 1, 0).result()
""",
        thorough=True,
    ),
    Behaviour(
        "python-started-by-the-script",
        """
        import subprocess
        import sys
        import textwrap

        text = '''
        import os, sys
        print(sys.argv, sys.orig_argv, sorted(os.environ.items()), sys.path, sys.flags)
        print(sorted(name for name in sys.modules if name.partition(".")[0] not in sys.stdlib_module_names))
        import sitecustomize
        '''
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(text), "x"])
        print(done.returncode)
        """,
    ),
    Behaviour(
        "script-started-by-itself",
        """
        import subprocess
        import sys

        print(sys.argv, flush=True)
        if len(sys.argv) == 1:
            subprocess.run([sys.executable, __file__, "again"])
        """,
        thorough=True,
    ),
    Behaviour(
        "coroutines",
        """
        import asyncio

        async def double(number):
            await asyncio.sleep(0.01)
            return 2 * number

        async def main():
            print(await asyncio.gather(double(1), double(2)), type(asyncio.get_running_loop()))
            lost = asyncio.create_task(fail(), name="lost")
            await asyncio.sleep(0.01)

        async def fail():
            raise ValueError("raised")

        asyncio.run(main())
        asyncio.run(fail())
        """,
    ),
)

CLIENTS = (
    _dask(
        "client-after-a-look-for-distributed",
        """
        with Client(**FEW) as client:
            print(client.submit(divmod, 7, 2).result())
        """,
        before="""
            import importlib.util

            assert importlib.util.find_spec("distributed")
            """,
        thorough=True,
    ),
    _dask(
        "computed-results",
        """
        import dask.bag

        def double(number):
            return 2 * number

        with Client(**FEW) as client:
            print(dask.compute(dask.delayed(double)(1), dask.delayed(double)("x")))
            print(client.gather(client.map(double, [1, 2])))
            print(dask.bag.from_sequence(range(9), npartitions=3).map(double).sum().compute())
        """,
        thorough=True,
    ),
    _dask(
        "exception-of-a-task",
        """
        def parse(text):
            return int(text)

        client = Client(**FEW)
        client.submit(parse, "x").result()
        """,
    ),
    _dask(
        "exception-within-a-decorated-function-of-dask",
        """
        import dask.array

        with Client(**FEW):
            dask.array.ones(3, dtype="wrong")
        """,
        thorough=True,
    ),
    _dask(
        "exception-while-a-client-is-open",
        """
        def main():
            with Client(**FEW) as client:
                client.submit(divmod, 7, 2).result()
                raise KeyError("mine")

        main()
        """,
        thorough=True,
    ),
    _dask(
        "killed-while-a-client-is-open",
        """
        import os
        import signal

        client = Client(**FEW)
        print(client.submit(divmod, 7, 2).result(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        thorough=True,
    ),
    _dask(
        "interrupted-while-it-waits-for-a-task",
        """
        import time

        with Client(**FEW) as client:
            future = client.submit(time.sleep, 1)
            print("ready", flush=True)
            future.result()
        """,
        signal=signal.SIGINT,
        thorough=True,
    ),
    _dask(
        "client-that-finds-no-scheduler",
        """
        import traceback

        def main():
            Client("tcp://127.0.0.1:9", timeout="1s")

        try:
            main()
        except OSError:
            traceback.print_exc(chain=False)  # Its causes depend on which attempt was the last.
        """,
        judged=False,
        thorough=True,
    ),
    _dask(
        "wrong-call-of-a-method",
        """
        with Client(**FEW) as client:
            client.submit()
        """,
        thorough=True,
    ),
    _dask(
        "classes-of-dask",
        """
        import inspect

        methods = (Client.__init__, Client.close, Client.submit, Client.compute, Client.gather, LocalCluster.__init__)
        for method in methods:
            code = inspect.unwrap(method).__code__
            print(method.__qualname__, method.__module__, inspect.signature(method), code.co_name, code.co_filename)
            print(inspect.getsource(method)[:100], inspect.getsourcelines(method)[1], sorted(vars(method)))
        print(inspect.signature(Client), sorted(vars(Client)), Client.__mro__)
        """,
        judged=False,
    ),
    _dask(
        "subclass-of-a-client",
        """
        class Mine(Client):
            def __init__(self, *arguments, **options):
                super().__init__(*arguments, **FEW, **options)
                self.closed = 0

            def close(self, *arguments, **options):
                self.closed += 1
                return super().close(*arguments, **options)

        with Mine(name="mine") as client:
            print(client.submit(divmod, 7, 2).result(), isinstance(client, Client), type(client))
        print(client.closed, client.status)
        """,
        thorough=True,
    ),
    _dask(
        "patched-client",
        """
        calls = []
        original = Client.submit

        def submit(self, *arguments, **options):
            calls.append(arguments)
            return original(self, *arguments, **options)

        Client.submit = submit
        with Client(**FEW) as client:
            print(client.submit(divmod, 7, 2).result(), calls)
        Client.submit = original
        """,
        thorough=True,
    ),
    _dask(
        "facts-of-a-cluster",
        """
        with Client(**FEW) as client:
            workers = client.scheduler_info()["workers"].values()
            print([(worker["nthreads"], worker["resources"]) for worker in workers], list(client.nthreads().values()))
            print(client.cluster.status, client.status, client.asynchronous, client.futures, client.generation)
            print(repr(client), list(client.get_versions()))
        """,
        thorough=True,
    ),
    _dask(
        "keys",
        """
        import dask.bag
        from dask.base import tokenize

        def double(number):
            return 2 * number

        with Client(**FEW) as client:
            print(client.submit(double, 1).key, tokenize(double), dask.delayed(double, pure=True)(1).key)
            print(dask.bag.from_sequence([1]).map(double).name)
        """,
        thorough=True,
    ),
    _dask(
        "stack-of-submit-and-compute",
        """
        import sys
        from pathlib import Path

        import dask

        class Told:
            def __dask_tokenize__(self):
                frame = sys._getframe()
                while frame := frame.f_back:
                    print(Path(frame.f_code.co_filename).name, frame.f_code.co_name, frame.f_lineno)
                print()
                return "told"

        def ignore(told): ...

        with Client(**FEW) as client:
            client.submit(ignore, Told()).result()
            dask.compute(dask.delayed(ignore, pure=True)(Told()), Told())
        """,
        thorough=True,
    ),
    _dask(
        "stack-of-a-task",
        """
        import sys
        from pathlib import Path

        def stack(number):
            frame, names = sys._getframe(), []
            while frame := frame.f_back:
                names.append((Path(frame.f_code.co_filename).name, frame.f_code.co_name, frame.f_lineno))
            return names

        with Client(**FEW) as client:
            print(*client.submit(stack, 1).result(), sep="\\n")
        """,
        thorough=True,
    ),
    Behaviour(
        "exception-in-a-worker-process",
        DOUBLE
        + """
def parse(text):
    return int(text), os.environ

if __name__ == "__main__":
    from distributed import Client

    with Client(n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
        print(client.submit(double, 1).result(), client.submit(lambda: (__name__, sys.argv, __file__)).result())
        client.submit(parse, "x").result()
""",
        arguments=("x",),
        judged=True,
    ),
    Behaviour(
        "environment-of-a-worker-process",
        """
        import os
        import sys

        def told():
            path = [each for each in sys.path if "dask-scratch-space" not in each]
            return sorted(os.environ), path, repr(sys.flags), sys.warnoptions

        if __name__ == "__main__":
            from distributed import Client

            with Client(n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
                print(*client.submit(told).result(), sep="\\n")
        """,
        environment={"PYTHONPATH": "lib"},
        judged=True,
        thorough=True,
    ),
    _dask(
        "client-that-is-collected",
        """
        import gc
        import weakref

        def used():
            client = Client(**FEW)
            print(client.submit(divmod, 7, 2).result())
            client.close()
            return weakref.ref(client), weakref.ref(client.cluster)

        kept = used()
        gc.collect()
        print([ref() is None for ref in kept])
        """,
        thorough=True,
    ),
    _dask(
        "clients-in-threads",
        """
        from concurrent.futures import ThreadPoolExecutor

        def used(number):
            with Client(**FEW, set_as_default=False) as client:
                return client.submit(divmod, number, 2).result()

        with ThreadPoolExecutor(2) as pool:
            print(list(pool.map(used, [7, 8])))
        """,
        before=QUIET,
        thorough=True,
    ),
    _dask(
        "asynchronous-client",
        """
        import asyncio

        async def main():
            async with Client(asynchronous=True, **FEW) as client:
                print(await client.submit(divmod, 7, 2), await client.gather(client.map(abs, [-1, -2])))
                await client.submit(divmod, 1, 0)

        asyncio.run(main())
        """,
        judged=False,
    ),
    _dask(
        "client-that-is-never-closed",
        """
        import atexit

        client = Client(**FEW)
        atexit.register(lambda: print("last registered", client.status))
        print(client.submit(divmod, 7, 2).result())
        """,
        before=QUIET + "import atexit\natexit.register(print, 'first registered')\n",
    ),
    _dask(
        "cluster-closed-before-its-client",
        """
        cluster = LocalCluster(**FEW)
        client = Client(cluster)
        print(client.submit(divmod, 7, 2).result())
        cluster.close()
        print(cluster.status, client.status)
        client.close()
        print(client.status)
        """,
        before=QUIET,
        thorough=True,
    ),
    _dask(
        "shut-down-by-its-client",
        """
        client = Client(**FEW)
        print(client.submit(divmod, 7, 2).result())
        client.shutdown()
        print(client.status)
        """,
        before=QUIET,
        thorough=True,
    ),
    _dask(
        "clients-within-tasks",
        """
        from distributed import get_client, worker_client

        def outer():
            with worker_client() as client:
                return client.submit(divmod, 7, 2).result(), get_client() is client

        with Client(**FEW) as client:
            print(client.submit(outer).result(), Client.current() is client)
        """,
        thorough=True,
    ),
    _dask(
        "own-plugin-of-the-scheduler",
        """
        from distributed import SchedulerPlugin

        class Seen(SchedulerPlugin):
            seen = []

            def transition(self, key, start, finish, *arguments, **options):
                self.seen.append((key, start, finish))

        with Client(**FEW) as client:
            client.register_plugin(Seen())
            future = client.submit(divmod, 7, 2, key="mine")
            future.result()
            plugin = next(each for each in client.cluster.scheduler.plugins.values() if type(each).__name__ == "Seen")
            print(*plugin.seen, sep="\\n")
        """,
        thorough=True,
    ),
    _dask(
        "logging-of-distributed",
        """
        with Client(**FEW, silence_logs=False) as client:
            client.submit(divmod, 7, 2).result()
        for line in sorted(re.sub(r"\\S*\\d\\S*", "#", line) for line in seen):
            print(line)
        """,
        before="""
            import logging
            import re

            seen = []

            class Kept(logging.Handler):
                def emit(self, record):
                    seen.append(f"{record.name} {record.levelname} {record.getMessage()}")

            logging.basicConfig(level=logging.INFO, handlers=[Kept()])
            """,
        thorough=True,
    ),
    _dask(
        "configuration",
        """
        import hashlib
        import json

        import dask

        with Client(**FEW) as client:
            text = json.dumps(dask.config.config, sort_keys=True, default=str)
            print(hashlib.sha256(text.encode()).hexdigest(), len(dask.config.defaults), dask.config.get("mine"))
            print(dask.config.get("scheduler", None), dask.config.get("distributed.comm.timeouts.connect"))
        """,
        before="""
            import dask

            dask.config.set({"distributed.comm.timeouts.connect": "7s", "mine": {"number": 1}})
            """,
        thorough=True,
    ),
    _dask(
        "modules-that-distributed-imports",
        """
        import sys

        packages = ("dask", "distributed", "numpy", "pandas")
        print(sorted(name for name in sys.modules if name.partition(".")[0] in packages))
        """,
        judged=False,
        thorough=True,
    ),
    _dask(
        "modules-that-a-client-imports",
        """
        import sys

        with Client(**FEW) as client:
            client.submit(divmod, 7, 2).result()
        packages = ("dask", "distributed", "numpy", "pandas")
        print(sorted(name for name in sys.modules if name.partition(".")[0] in packages))
        """,
    ),
    _dask(
        "warning-of-dask-at-the-caller",
        """
        def main():
            return LocalCluster(start=True, **FEW)

        main().close()
        """,
        judged=False,
        thorough=True,
    ),
    _dask(
        "warning-of-a-large-graph",
        """
        with Client(**FEW) as client:
            print(client.submit(len, bytes(20_000_000)).result())
        """,
        thorough=True,
    ),
    _dask(
        "forked-process-while-a-client-is-open",
        """
        import os
        import warnings

        warnings.simplefilter("ignore")
        with Client(**FEW) as client:
            print(client.submit(divmod, 7, 2).result(), flush=True)
            child = os.fork()
            if child == 0:
                os._exit(3)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        thorough=True,
    ),
    Behaviour(
        "threads-of-dask-without-a-client",
        """
        import dask

        @dask.delayed
        def parse(text):
            return int(text)

        print(dask.compute(parse("1"), parse("2"), scheduler="threads"))
        parse("x").compute(scheduler="sync")
        """,
    ),
)

BEHAVIOURS = (
    *SCRIPT,
    *MODULE,
    *ENVIRONMENT,
    *MODULES,
    *ENDINGS,
    *SIGNALS,
    *STREAMS,
    *INTROSPECTION,
    *WARNINGS,
    *PROCESSES,
    *CLIENTS,
)
