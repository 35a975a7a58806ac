"""Work handed to a pool of workers: searches, ensembles, pipelines, streams, workflow engines."""

from __future__ import annotations

import random
import tempfile
import time
import uuid
from collections import deque
from pathlib import Path

import dask
import numpy as np
from dask import delayed
from declare import case, mends, remedy
from distributed import Event, Queue, get_worker, wait


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
    are slots), dmlc/xgboost#2307."""
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


@case("straggler", 25, near="results-awaited-in-loop skewed-tasks slow-worker sequential-graph")
@remedy("a time limit that ends a pipeline while it is evaluated", limit_s=7.5)
def one_pipeline_takes_forever(client, generations: int = 3, population: int = 100, limit_s: float = 90.0):
    """Possible to see the current hyperparameters for pipeline on Dask WebUI? (the next generation waits for one
    pipeline of a hundred), EpistasisLab/tpot#1265."""

    def evaluate(generation, individual):
        slow = individual == (41 + 7 * generation) % population
        time.sleep(min(limit_s, 90.0 if slow else 7.5))
        return individual

    for generation in range(generations):
        client.gather(client.map(evaluate, [generation] * population, range(population), pure=False))


@case("healthy", 40, near="skewed-tasks slow-submission results-awaited-in-loop uneven-waves")
def trials_of_a_study(client, trials: int = 500):
    """Dask documentation, Machine Learning (Optuna: many optimize methods in parallel, the study on the scheduler):
    https://docs.dask.org/en/stable/ml.html."""

    def optimize(trial):
        time.sleep(5 + 10 * random.Random(trial).random())
        return trial

    wait([client.submit(optimize, trial, pure=False) for trial in range(trials)])


@case("slow-submission", 10, "light", near="results-awaited-in-loop few-tasks-in-flight too-few-partitions")
@remedy("plain client.map", plain=True)
def flow_creates_tasks_slowly(client, tasks: int = 40, plain: bool = False):
    """Slow dask task creation for complex functions (one a second, by a flow that maps a method),
    PrefectHQ/prefect#18191."""

    def method(i):
        time.sleep(4)
        return i

    futures = []
    for i in range(tasks):
        if not (plain and i):
            time.sleep(1)  # the method is wrapped and pickled again
        futures.append(client.submit(method, i, pure=False))
    client.gather(futures)


@case(("client-busy", "results-awaited-in-loop"), 8, near="large-graph sequential-graph too-few-partitions")
@remedy("build the graph of the next well while one is computed", ahead=True)
def well_after_well(client, wells: int = 10, fields: int = 16, ahead: bool = False):
    """Send dask graphs sequentially to scheduler (well after well; the graph of each is built first),
    fmi-faim/faim-ipa#72."""

    def stitch_and_bin(well, field):
        time.sleep(1)
        return field

    running = []
    for well in range(wells):
        time.sleep(2)  # build the graph of this well
        graph = [delayed(stitch_and_bin, pure=False)(well, field) for field in range(fields)]
        if ahead:
            client.gather(running)
            running = client.compute(graph)
        else:
            dask.compute(graph)
    client.gather(running)


@case("healthy", 5, "light", near="results-awaited-in-loop sequential-graph client-busy uneven-waves")
def surfaces_in_batches(client, jobs: int = 100, batch_size: int = 20):
    """Processing updates (surface models in batches of 20 jobs on five workers), uw-cryo/lidar_tools#25."""

    def run_pipeline(i):
        time.sleep(0.56 + 0.08 * random.Random(i).random())
        return f"dsm_{i:04d}.tif"

    tasks = [delayed(run_pipeline)(i) for i in range(jobs)]
    files = []
    for i in range(0, jobs, batch_size):
        files.extend(dask.compute(*tasks[i : i + batch_size]))


@case("retried-tasks", 8, near="skewed-tasks straggler recomputation")
@remedy("read again what failed, within the task (robust_getitem)", robust=True)
def chunks_copied_again(client, chunks: int = 48, reads: int = 8, robust: bool = False):
    """Retries with prefect (and other executors) (a read from the object store fails now and then, and the whole
    chunk is copied again), pangeo-data/rechunker#51."""
    with tempfile.TemporaryDirectory() as folder:

        def get_item(chunk, read):
            time.sleep(0.5)
            if read == reads - 1:  # of each four chunks, one fails here three times, one twice, one once
                seen = len(list(Path(folder).glob(f"{chunk}.*")))
                if seen < chunk % 4:
                    Path(folder, f"{chunk}.{seen}").touch()
                    raise OSError("503 Slow Down")

        def copy_chunk(chunk):
            for read in range(reads):
                while True:
                    try:
                        get_item(chunk, read)
                        break
                    except OSError:
                        if not robust:
                            raise
            time.sleep(0.5)  # write it
            return chunk

        client.gather(client.map(copy_chunk, range(chunks), retries=5, pure=False))


@case("slow-worker", 6, "light", near="straggler skewed-tasks results-awaited-in-loop uneven-waves")
@remedy("copy_input_to_local_file=False", copies_first=False)
def chunks_stored_by_way_of_a_slow_volume(client, copies_first: bool = True, recipes: int = 3, chunks: int = 18):
    """Dask clusters getting stuck during pangeo-forge workloads (store_chunk takes 90 s on some workers and 600 s
    on others, which copy to a slow volume first), pangeo-forge/pangeo-forge-recipes#88."""
    slow = min(client.scheduler_info(n_workers=-1)["workers"])

    def store_chunk(recipe, chunk):
        time.sleep(6.0 if copies_first and get_worker().address == slow else 0.9)
        return chunk

    for recipe in range(recipes):
        client.gather(client.map(store_chunk, [recipe] * chunks, range(chunks), pure=False))


@case("undersubscribed-threads", 1, "local", near="healthy tiny-tasks gil-bound")
@remedy("more threads for each worker", threads=4)
def one_thread_for_a_gpu(client, partitions: int = 16):
    """[QST] How to use multiple threads per GPU worker? (GPUs are underused with one thread each),
    rapidsai/dask-cuda#109."""

    def read_and_infer(i):
        time.sleep(0.25)  # read it from storage and copy it to the device
        time.sleep(0.05)  # run the kernels
        return i

    client.gather(client.map(read_and_infer, range(partitions), pure=False))


@case("healthy", 8, "light", near="few-tasks-in-flight slow-submission results-awaited-in-loop data-locality")
def frames_behind_a_buffer(client, frames: int = 120, buffer: int = 16):
    """different cores on different branches (frames of a camera, scattered, measured and gathered behind a buffer,
    as the answer recommends), python-streamz/streamz#196."""

    def focusmetric(image):
        time.sleep(0.6)
        return float(image.mean())

    waiting = deque()
    for frame in range(frames):
        time.sleep(0.02)  # grab it, and show its JPEG on the other branch
        [image] = client.scatter([np.full((32, 32), frame)], hash=False)
        waiting.append(client.submit(focusmetric, image, pure=False))
        if len(waiting) > buffer:
            waiting.popleft().result()
    client.gather(list(waiting))


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


@case("memory-spill", 1, {"kind": "local", "memory_limit_mb": 600}, near="memory-paused recomputation transfer-bound")
def images_level_by_level(client, images: int = 56, mebibytes: int = 12):
    """Image processing pipelines fails: insufficient memory due to breadth-first execution (the flow keeps every
    image, loaded and rotated), PrefectHQ/prefect#4946."""

    def load_image(uri):
        return np.random.default_rng(uri).random((1024, mebibytes * 128))

    def rotate_image(image):
        return np.rot90(image).copy()

    def save_image(image):
        return float(image[0, 0])

    loaded = client.map(load_image, range(images), pure=False)
    wait(loaded)
    rotated = client.map(rotate_image, loaded, pure=False)
    wait(rotated)
    client.gather(client.map(save_image, rotated, pure=False))


@mends(images_level_by_level, "one task for each image that loads, rotates and saves it")
def images_one_by_one(client, images: int = 56, mebibytes: int = 12):
    def process(uri):
        image = np.random.default_rng(uri).random((1024, mebibytes * 128))
        return float(np.rot90(image).copy()[0, 0])

    client.gather(client.map(process, range(images), pure=False))


@case("healthy", 2, "light", near="large-graph serialisation-bound transfer-bound data-locality narrow-stage")
def batches_for_a_delayed_model(client, images: int = 60, batch: int = 10):
    """Batch Prediction with PyTorch (load, transform, stack, predict with a delayed model):
    https://examples.dask.org/machine-learning/torch-prediction.html."""

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
