"""Tasks that wait for a model which each worker loads."""

from __future__ import annotations

import time

from declare import case, remedy
from distributed import get_worker


@case("work-inflation", (2, 8), near="straggler skewed-tasks late-workers")
@remedy("load it when workers start", loading=0.0)
def a_model_for_each_worker(client, videos: int = 64, loading: float = 20.0):
    """Use case with deep-learning frameworks: prediction in parallel (a model created on each worker),
    dask/dask-ml#281.
    """

    def detect(video):
        models = get_worker().__dict__.setdefault("models", [])
        if not models:
            time.sleep(loading)
            models.append("a model")
        time.sleep(5)
        return video

    client.gather(client.map(detect, range(videos), pure=False))
