"""A workload for the stand-in: each task reads, computes in Python, and holds the card.

`read_s`, `python_s` and `kernel_s` are seconds of each. Tasks of another kind, `others` of them, hold no card.
"""

import os
import threading
import time


def step(item, kernel_s, read_s, python_s):
    import pynvml

    if read_s:
        read(read_s)
    compute(python_s)
    pynvml.kernel(kernel_s)
    return item


def read(seconds):
    end, other = os.pipe()
    threading.Timer(seconds, os.close, [other]).start()
    with open(end) as file:
        file.read()


def compute(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def prepare(item, seconds):
    compute(seconds)
    return item


def run(
    client,
    *,
    items: int = 40,
    kernel_s: float = 0.1,
    read_s: float = 0.0,
    python_s: float = 0.0,
    others: int = 0,
    error: str = "",
):
    """Tasks that hold the card."""
    if error:
        client.submit(_raise, error, pure=False).result()
    first = client.map(prepare, range(others), seconds=0.1, pure=False)
    client.gather(first)
    asked = {"kernel_s": kernel_s, "read_s": read_s, "python_s": python_s}
    return len(client.gather(client.map(step, range(items), pure=False, **asked)))


def _raise(text):
    raise RuntimeError(text)
