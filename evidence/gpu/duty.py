"""A workload whose use of the GPU is known: kernels of `busy_s`, timed on the card, and as long a sleep as is asked."""

import time


def turn(item, busy_s, idle_s):
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    factor = torch.full((2048, 2048), 1e-3, device="cuda")
    until = time.monotonic() + busy_s
    begin.record()
    while time.monotonic() < until:
        factor = (factor @ factor) * 0 + 1e-3
        torch.cuda.synchronize()
    end.record()
    end.synchronize()
    time.sleep(idle_s)
    return begin.elapsed_time(end) / 1000


def run(client, *, items: int = 10, busy_s: float = 0.3, idle_s: float = 0.3):
    """Kernels and sleeps in turn."""
    return {"gpu_s": sum(client.gather(client.map(turn, range(items), busy_s=busy_s, idle_s=idle_s, pure=False)))}
