"""Tasks that need no GPU, on the workers that have one, before tasks that use it."""

import time


def prepare(item):
    until = time.thread_time() + 0.1
    while time.thread_time() < until:
        pass


def train(item):
    import torch

    factor = torch.full((4096, 4096), 1e-3, device="cuda")
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        factor = (factor @ factor) * 0 + 1e-3
        torch.cuda.synchronize()


def run(client, *, items: int = 8, others: int = 40):
    """A stage on the CPU, then a stage on the GPU."""
    client.gather(client.map(prepare, range(others), pure=False))
    return len(client.gather(client.map(train, range(items), pure=False)))
