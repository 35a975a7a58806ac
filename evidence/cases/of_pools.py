"""Work handed to a pool of workers: searches, ensembles, pipelines, streams, workflow engines."""

from __future__ import annotations

import time
import uuid

import dask
import numpy as np
from dask import delayed
from declare import case, remedy
from distributed import Event, Queue, get_worker


@case(("worker-restriction", "invalid-trials"), 2, "light", near="waiting-tasks late-workers", timeout_s=10.0)
@remedy("ask for no resource", gpus=0)
def unknown_resource(client, gpus: int = 1, tasks: int = 12):
    """Dask hangs instead of erroring when a task requests a resource unknown to workers, dask/dask#9587."""

    def on_gpu(i):
        time.sleep(1)
        return i

    asked = {"resources": {"GPU": gpus}} if gpus else {}
    futures = [client.submit(on_gpu, i, pure=False, **asked) for i in range(tasks)]
    for future in futures:
        future.result()


@case(("invalid-trials", "waiting-tasks"), 4, "light", near="straggler nested-client", timeout_s=10.0)
@remedy("as many workers as tasks", workers=5)
def training_needs_all_at_once(client, tasks: int = 5, seconds: float = 6.0):
    """[jvm-packages] xgboost spark training hangs when not all tasks run at the same time (one task more than there
    are slots), dmlc/xgboost#2307.
    """
    run = uuid.uuid4().hex
    tracker, everyone = Queue(f"tracker-{run}"), Event(f"everyone-{run}")

    def train(rank):
        Queue(f"tracker-{run}").put(rank)
        Event(f"everyone-{run}").wait()
        time.sleep(seconds)
        return rank

    futures = client.map(train, range(tasks), pure=False)
    for _ in futures:  # the tracker waits for every rank before it lets one begin
        tracker.get()
    everyone.set()
    client.gather(futures)


@case("slow-worker", 6, "light", near="straggler skewed-tasks results-awaited-in-loop uneven-waves")
@remedy("copy_input_to_local_file=False", copies_first=False)
def chunks_stored_by_way_of_a_slow_volume(client, copies_first: bool = True, recipes: int = 3, chunks: int = 18):
    """Dask clusters getting stuck during pangeo-forge workloads (store_chunk takes 90 s on some workers and 600 s
    on others, which copy to a slow volume first), pangeo-forge/pangeo-forge-recipes#88.
    """
    slow = min(client.scheduler_info(n_workers=-1)["workers"])

    def store_chunk(recipe, chunk):
        time.sleep(6.0 if copies_first and get_worker().address == slow else 0.9)
        return chunk

    for recipe in range(recipes):
        client.gather(client.map(store_chunk, [recipe] * chunks, range(chunks), pure=False))


@case("gil-bound", 1, "local", threads=2, near="undersubscribed-threads event-loop-blocked")
@remedy("processes instead of threads", workers=2, threads=1)
def baselines_in_threads(client, signals: int = 8, points: int = 4_000, rounds: int = 2_000):
    """Remove baseline functionality using `pybaselines` (it does not release the lock), hyperspy/hyperspy#3441."""

    def remove_baseline(signal):
        data = [signal + (i % 17) * 0.5 for i in range(points)]
        base = min(data)
        for _ in range(rounds):
            base = sum([x if x < base + 1.0 else base for x in data]) / points
        return base

    client.gather(client.map(remove_baseline, range(signals), pure=False))


@case("healthy", 2, "light", near="large-graph serialisation-bound transfer-bound data-locality narrow-stage")
def batches_for_a_delayed_model(client, images: int = 60, batch: int = 10):
    """Batch Prediction with PyTorch (load, transform, stack, predict with a delayed model):
    https://examples.dask.org/machine-learning/torch-prediction.html.
    """

    @delayed
    def load(path):
        time.sleep(0.04)
        return np.full((64, 64, 3), path % 256, dtype=np.uint8)

    @delayed
    def transform(image):
        time.sleep(0.05)
        return image.astype(np.float32).transpose(2, 0, 1)

    @delayed
    def predict(images, model):
        time.sleep(0.6)
        return float(images.mean() * model[0])

    tensors = [transform(load(path)) for path in range(images)]
    stacks = [delayed(np.stack)(tensors[i : i + batch]) for i in range(0, images, batch)]
    model = delayed(np.ones(1_000_000, dtype=np.float32))  # a small network
    dask.compute(*[predict(stack, model) for stack in stacks])
