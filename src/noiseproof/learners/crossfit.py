"""Cross-fitting: every learner is trained once for each fold on the other folds' labels, and predicts the fold.

One task is one learner and one fold. Tasks run in processes of one thread each. Finished tasks are files (:mod:`store`), so
that what was interrupted resumes to the same numbers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.io.arrays import large_array
from noiseproof.io.files import DataError, write_whole
from noiseproof.io.processes import process_pool, removed_with_this_process
from noiseproof.io.text import excerpt, read_json
from noiseproof.learners.base import ClassWeight
from noiseproof.learners.catalog import PLAIN, SPECS
from noiseproof.learners.store import STORE_VERSION, Computed, LearnerTask, TaskStore, digest_of, task_key

if TYPE_CHECKING:
    from noiseproof.io.processes import Cluster

PROCESS_SECONDS = 3.0
"""Of tasks that are worth a further process: starting it takes as long. Those of less than two are computed in this process"""
PRIOR_SECONDS = 0.5
"""How much the cost model counts beside what was measured: the first tasks are short, and say little of a machine's speed"""
STACK_SHARE = 0.2
"""Of a budget of minutes, what is kept back for the noise model and the files"""


class Stage(NamedTuple):
    """How far a fit is."""

    name: str
    """What is computed, such as ``boosting, fold 2/5``"""
    done: int
    """Tasks that are done"""
    total: int
    seconds_left: float | None
    """None if nothing is known yet"""


def assign_folds(
    labels: NDArray[np.int64], folds: int, seed: int, groups: Sequence[Any] | NDArray[Any] | None = None
) -> NDArray[np.int64]:
    """The fold of each row, at random: every class is spread evenly over the folds.

    Args:
        labels: The given labels ``[N]``.
        folds: How many; at most the number of rows.
        seed: Of the random order.
        groups: Rows of the same group are in one fold, and groups are spread by the label that is most frequent in them.

    Returns:
        The fold ``[N]`` of each row, from 0.

    Raises:
        DataError: There are fewer groups than folds.

    Example:
        >>> assign_folds(np.array([0, 0, 0, 0, 1, 1]), 2, seed=0)[4:].sum().item()
        1
        >>> assign_folds(np.array([0, 0, 1, 1]), 2, seed=0, groups=["a", "b", "a", "b"]).reshape(2, 2).tolist()
        [[0, 1], [0, 1]]
    """
    if groups is None:
        return _dealt(labels, np.zeros(len(labels), np.int64), folds, seed)
    _, member, sizes = np.unique(np.asarray(groups).astype(str), return_inverse=True, return_counts=True)
    if len(member) != len(labels):
        raise DataError(f"there must be one group for each row: {len(labels)} rows, {len(member)} groups")
    if len(sizes) < folds:
        raise DataError(f"the rows of a group share a fold, and there are {len(sizes)} groups for {folds} folds")
    pairs, counts = np.unique(np.stack([member, labels], 1), axis=0, return_counts=True)
    order = np.lexsort((-counts, pairs[:, 0]))
    first = order[np.unique(pairs[order, 0], return_index=True)[1]]
    return _dealt(pairs[first, 1], -sizes, folds, seed)[member]


def _dealt(labels: NDArray[np.int64], rank: NDArray[np.int64], folds: int, seed: int) -> NDArray[np.int64]:
    """Deal examples out to the folds, class by class, within a class by ``rank`` and then at random."""
    order = np.random.default_rng(seed).permutation(len(labels))
    dealt = order[np.lexsort((rank[order], labels[order]))]
    fold = np.empty(len(labels), dtype=np.int64)
    fold[dealt] = np.arange(len(labels)) % folds
    return fold


def left_out(dropped: Mapping[str, str]) -> list[str]:
    """A sentence for each reason why learners were left out.

    >>> left_out({"boosting": "left out to stay within 1 minutes", "network": "left out to stay within 1 minutes"})
    ['boosting, network were left out to stay within 1 minutes']
    """
    names: dict[str, list[str]] = {}
    for name, why in dropped.items():
        names.setdefault(why, []).append(name)
    return [f"{', '.join(found)} {'were' if len(found) > 1 else 'was'} {why}" for why, found in names.items()]


def task_jobs(jobs: int | None = None) -> int:
    """How many tasks run concurrently: by default one for each core that this process may use.

    >>> task_jobs(3)
    3
    """
    if jobs is not None:
        return jobs
    from joblib import cpu_count

    return max(1, int(cpu_count(only_physical_cores=False)))


@dataclass(frozen=True)
class CrossFit:
    """What cross-fitting computed.

    Attributes:
        predictions: Out-of-fold class probabilities ``[N, K]`` by learner.
        fold: The fold ``[N]`` of each row.
        seconds: What each learner took, all folds together.
        files: For each learner the file of each fold, with the trained learner inside.
        dropped: Learners that were left out, and why.
    """

    predictions: dict[str, NDArray[np.float32]]
    fold: NDArray[np.int64]
    seconds: dict[str, float]
    files: dict[str, list[Path]]
    dropped: dict[str, str]


@dataclass
class _Data:
    """What every task reads."""

    x: NDArray[np.float32]
    labels: NDArray[np.int64]
    fold: NDArray[np.int64]
    classes: int
    seed: int = 0
    class_weight: ClassWeight = None

    def parts(self, number: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """The rows that are held out, and those that are learnt."""
        held = self.fold == number
        return held, ~held

    @property
    def digest(self) -> str:
        return digest_of({"x": np.ascontiguousarray(self.x), "labels": self.labels, "fold": self.fold})


def crossfit(
    x: NDArray[np.float32],
    labels: NDArray[np.int64],
    classes: int,
    fold: NDArray[np.int64],
    learners: Sequence[str],
    *,
    folder: Path,
    seed: int = 0,
    class_weight: ClassWeight = None,
    threads: int | None = None,
    jobs: int | None = None,
    minutes: float | None = None,
    cluster: Cluster | None = None,
    progress: Callable[[Stage], object] | None = None,
) -> CrossFit:
    """Train each learner without each fold, and predict the fold.

    Args:
        x: Features ``[N, D]``, or images ``[N, H, W, C]``.
        labels: The given labels ``[N]``.
        classes: How many classes there are.
        fold: The fold ``[N]`` of each row.
        learners: Names from the catalogue.
        folder: Where finished tasks are kept; the same call does not compute them again.
        seed: Of the learners that draw random numbers.
        class_weight: "balanced" trains with the same weight for all classes.
        threads: Threads of each task; one by default.
        jobs: Tasks that run concurrently, at most; one for each core by default.
        minutes: Learners are left out, the costliest first, so that the rest ends within this time.
        cluster: Where tasks run; in processes of this machine by default, with the same result.
        progress: Called with a :class:`Stage` when a task is finished.

    Returns:
        The predictions, and the files of the trained learners.

    Raises:
        BusyError: Another process is at work in the folder.
        OSError: The disk is full.
        ValueError: No learner could be trained.
    """
    data, store = _Data(x, labels, fold, classes, seed, class_weight), TaskStore(folder)
    with store.claimed():
        most = task_jobs(jobs) if cluster is None else jobs or max(1, cluster.resource("CPU"))
        queue = _Queue(data, store, list(learners), minutes, progress, most)
        queue.take_stored()
        if cluster is not None:
            _run_on_cluster(queue, threads or 1, cluster)
            return queue.finished()
        queue.jobs = max(1, min(queue.jobs, int(queue.seconds_left() * queue.jobs / PROCESS_SECONDS)))
        if queue.jobs == 1:
            _run_here(queue, threads or 1)
        else:
            _run_in_processes(queue, threads or 1)
        return queue.finished()


@dataclass
class _Queue:
    """Which tasks are done, running and waiting, what they take, and which learners the budget leaves out."""

    data: _Data
    store: TaskStore
    learners: list[str]
    minutes: float | None
    progress: Callable[[Stage], object] | None
    jobs: int
    start: float = field(default_factory=time.monotonic)
    found: set[LearnerTask] = field(default_factory=set)
    predictions: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    seconds: dict[LearnerTask, float] = field(default_factory=dict)
    running: set[LearnerTask] = field(default_factory=set)
    dropped: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folds = int(self.data.fold.max()) + 1
        self.digest = self.data.digest
        rows, columns = len(self.data.x), self.data.x[0].size
        learnt = rows - rows // self.folds
        self.cost = {name: SPECS[name].seconds(learnt, columns, self.data.classes) for name in self.learners}
        for name in self.learners:
            if self.data.classes > SPECS[name].max_classes:
                self.dropped[name] = f"left out as too slow for {self.data.classes} classes"
        # With a budget the cheap ones first, so that what is left out is what costs most; else the long ones first.
        self.learners.sort(key=lambda name: self.cost[name], reverse=self.minutes is None)
        asked = [self.digest, sorted(self.learners), self.data.seed, self.minutes, STORE_VERSION]
        self.decisions = self.store.folder / f"left-out-{hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]}.json"

    def key(self, task: LearnerTask) -> str:
        return task_key(self.digest, self.data.classes, task, self.data.seed, self.data.class_weight)

    def tasks(self) -> list[LearnerTask]:
        """Of all learners that are not left out."""
        return [LearnerTask(name, number) for name in self.learners if name not in self.dropped for number in range(self.folds)]

    def take_stored(self) -> None:
        """Take over what an earlier call finished, and what its budget left out."""
        if self.minutes is not None and self.decisions.is_file():
            with contextlib.suppress(ValueError, OSError, AttributeError, TypeError):
                stored = read_json(self.decisions)
                if stored.pop("of", self.decisions.name) == self.decisions.name:  # those of before do not say it
                    self.dropped = {str(name): str(why) for name, why in stored.items() if name in self.learners}
        for task in self.tasks():
            shape = int((self.data.fold == task.fold).sum()), self.data.classes
            if (stored_task := self.store.read(task, self.key(task), shape)) is not None:
                self._take(task, *stored_task)

    def _take(self, task: LearnerTask, predictions: NDArray[np.float32], seconds: float) -> None:
        if task.learner not in self.predictions:
            self.predictions[task.learner] = large_array((len(self.data.labels), self.data.classes))
        self.predictions[task.learner][self.data.fold == task.fold] = predictions
        self.seconds[task] = seconds
        self.found.add(task)

    def next(self) -> LearnerTask | None:
        """A task to start; the budget is looked at before."""
        self._keep_to_budget()
        waiting = (task for task in self.tasks() if task not in self.found and task not in self.running)
        task = next(waiting, None)
        if task is not None:
            self.running.add(task)
        return task

    def _expected(self, task: LearnerTask) -> float:
        """The seconds of a task: those of its learner's other folds, or its cost model's on a machine of the measured speed."""
        own = [seconds for other, seconds in self.seconds.items() if other.learner == task.learner]
        if own:
            return float(np.mean(own))
        taken, modelled = sum(self.seconds.values()), sum(self.cost[other.learner] for other in self.seconds)
        return self.cost[task.learner] * (taken + PRIOR_SECONDS) / (modelled + PRIOR_SECONDS)

    def seconds_left(self) -> float:
        return sum(self._expected(task) for task in self.tasks() if task not in self.found) / self.jobs

    def _keep_to_budget(self) -> None:
        if self.minutes is None:
            return
        budget = 60 * self.minutes * (1 - STACK_SHARE) - (time.monotonic() - self.start)
        while self.seconds_left() > budget:
            left = {name: sum(map(self._expected, tasks)) for name, tasks in self._open().items()}
            views = [name for name in self.learners if name not in self.dropped and name not in PLAIN]
            candidates = [name for name in left if (name in PLAIN) == (len(views) < 2)]  # plain training is left out last
            if not candidates:
                return
            worst = max(candidates, key=lambda name: left[name])
            self._drop(worst, f"left out to stay within {self.minutes:g} minutes")

    def _open(self) -> dict[str, list[LearnerTask]]:
        """The tasks of each learner that are not finished."""
        found: dict[str, list[LearnerTask]] = {}
        for task in self.tasks():
            if task not in self.found:
                found.setdefault(task.learner, []).append(task)
        return found

    def _drop(self, name: str, why: str) -> None:
        self.dropped[name] = why
        self.predictions.pop(name, None)
        if self.minutes is not None:
            text = json.dumps({**self.dropped, "of": self.decisions.name})
            write_whole(self.decisions, lambda place: place.write_text(text, encoding="utf-8"))

    def ended(self, task: LearnerTask, seconds: float | None, fault: str = "") -> None:
        """Note that a task is finished, and read its predictions; a learner that failed is left out."""
        self.running.discard(task)
        if seconds is None:
            if task.learner not in self.dropped:
                self._drop(task.learner, f"left out after a failure: {fault}")
        elif task.learner not in self.dropped:
            shape = int((self.data.fold == task.fold).sum()), self.data.classes
            stored = self.store.read(task, self.key(task), shape)
            if stored is None:
                raise OSError(f"{self.store.path(task, self.key(task))}: what was written cannot be read again")
            self._take(task, *stored)
        if self.progress is not None:
            done, total = sum(task in self.found for task in self.tasks()), len(self.tasks())
            self.progress(Stage(f"{task.learner}, fold {task.fold + 1}/{self.folds}", done, total, self.seconds_left()))

    def finished(self) -> CrossFit:
        kept = [name for name in SPECS if name in self.learners and name not in self.dropped]
        if not kept:
            raise ValueError(f"no learner could be trained: {'; '.join(left_out(self.dropped))}")
        predictions, seconds, files = {name: self.predictions[name] for name in kept}, {}, {}
        for name in kept:
            seconds[name] = sum(self.seconds[LearnerTask(name, number)] for number in range(self.folds))
            files[name] = [self.store.path(task, self.key(task)) for task in (LearnerTask(name, k) for k in range(self.folds))]
        return CrossFit(predictions, self.data.fold, seconds, files, self.dropped)


@contextlib.contextmanager
def limited_threads(count: int, needs_torch: bool = False) -> Iterator[None]:
    """Let BLAS, scikit-learn and torch compute with so many threads in this process; torch is imported only if it is needed.

    >>> with limited_threads(1, needs_torch=True):
    ...     import torch; torch.get_num_threads()
    1
    """
    from threadpoolctl import threadpool_limits

    with contextlib.ExitStack() as held:
        held.enter_context(threadpool_limits(count))
        if needs_torch or "torch" in sys.modules:
            import torch

            held.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(count)
        yield


def _run_here(queue: _Queue, threads: int) -> None:
    _import_learners()
    with limited_threads(threads, any(SPECS[task.learner].needs_torch for task in queue.tasks())):
        while (task := queue.next()) is not None:
            queue.ended(task, *_run(queue.data, queue.store.folder, task, queue.key(task)))


def _run_in_processes(queue: _Queue, threads: int) -> None:
    """Tasks in processes that read the data from one memory-mapped file. Interrupted, none of them is left."""
    with tempfile.TemporaryDirectory(prefix="noiseproof-") as place, removed_with_this_process(place):
        for name in ("x", "labels", "fold"):
            np.save(Path(place, f"{name}.npy"), getattr(queue.data, name))
        env = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        pool = process_pool(queue.jobs, _import_learners, (), env)
        settings = queue.data.classes, queue.data.seed, queue.data.class_weight
        done = False
        try:
            _run_elsewhere(
                queue,
                lambda task: pool.submit(_run_mapped, place, settings, threads, queue.store.folder, task, queue.key(task)),
                lambda futures: wait(futures, return_when=FIRST_COMPLETED).done,
                _result,
            )
            done = True
        finally:
            pool.shutdown(kill_workers=not done)


def _run_elsewhere(
    queue: _Queue,
    start: Callable[[LearnerTask], Any],
    ended: Callable[[list[Any]], Iterable[Any]],
    result: Callable[[Any, LearnerTask], tuple[float | None, str]],
) -> None:
    """Keep as many tasks running as there may be, until all have ended."""
    running: dict[Any, LearnerTask] = {}
    while True:
        while len(running) < queue.jobs and (task := queue.next()) is not None:
            running[start(task)] = task
        if not running:
            return
        for handle in ended(list(running)):
            task = running.pop(handle)
            queue.ended(task, *result(handle, task))


def _result(future: Future[Any], task: LearnerTask) -> tuple[float | None, str]:
    """Of a task in a process of this machine."""
    if _was_killed(error := future.exception()):
        raise MemoryError(f"the process that trained {task.learner} was killed, as the system does when memory runs out")
    if error is not None:
        raise error
    found: tuple[float | None, str] = future.result()
    return found


def _run_on_cluster(queue: _Queue, threads: int, cluster: Cluster) -> None:
    """Tasks on the machines of a cluster, which are sent the data once and need not see the folder."""
    sent = [cluster.put(getattr(queue.data, name)) for name in ("x", "labels", "fold")]
    settings = queue.data.classes, queue.data.seed, queue.data.class_weight

    def result(handle: Any, task: LearnerTask) -> tuple[float | None, str]:
        found, fault = cluster.result(handle)
        if found is None:
            return None, fault
        queue.store.write(task, queue.key(task), *found)
        return found[-1], ""

    running: list[Any] = []

    def start(task: LearnerTask) -> Any:
        running.append(cluster.submit(_compute_sent, *sent, settings, threads, task))
        return running[-1]

    try:
        _run_elsewhere(queue, start, cluster.ended, result)
    except BaseException:
        cluster.cancel(running)
        raise


def _was_killed(error: BaseException | None) -> bool:
    return error is not None and type(error).__name__ in ("TerminatedWorkerError", "BrokenProcessPool")


def _import_learners() -> None:
    """What most tasks import: the first one's seconds would be those of the import."""
    import sklearn.ensemble
    import sklearn.linear_model  # noqa: F401 # likewise


def _run_mapped(
    place: str, settings: tuple[int, int, ClassWeight], threads: int, folder: Path, task: LearnerTask, key: str
) -> tuple[float | None, str]:
    """In a process, where the environment limits the threads of torch; it need not be imported for that."""
    from threadpoolctl import threadpool_limits

    x, labels, fold = (np.load(Path(place, f"{name}.npy"), mmap_mode="r") for name in ("x", "labels", "fold"))
    with threadpool_limits(threads):
        return _run(_Data(x, labels, fold, *settings), folder, task, key)


def _compute_sent(
    x: NDArray[np.float32],
    labels: NDArray[np.int64],
    fold: NDArray[np.int64],
    settings: tuple[int, int, ClassWeight],
    threads: int,
    task: LearnerTask,
) -> tuple[Computed | None, str]:
    """On a machine of a cluster."""
    _import_learners()
    with limited_threads(threads, SPECS[task.learner].needs_torch):
        return _compute(_Data(x, labels, fold, *settings), task)


def _run(data: _Data, folder: Path, task: LearnerTask, key: str) -> tuple[float | None, str]:
    """Train and predict one task and store it; returns its seconds, or None and what went wrong."""
    found, fault = _compute(data, task)
    if found is None:
        return None, fault
    TaskStore(folder).write(task, key, *found)
    return found.seconds, ""


def _compute(data: _Data, task: LearnerTask) -> tuple[Computed | None, str]:
    """Train and predict one task; None and what went wrong if that is not possible."""
    held, learnt = data.parts(task.fold)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            seed = int(np.random.SeedSequence((data.seed, task.fold)).generate_state(1)[0])
            learner = SPECS[task.learner].make(seed, data.class_weight)
            x = SPECS[task.learner].inputs(data.x)
            learner.fit(np.asarray(x[learnt]), np.asarray(data.labels[learnt]), data.classes)
            predictions = np.asarray(learner.predict_proba(np.asarray(x[held])), np.float32)
            if not np.isfinite(predictions).all():
                raise FloatingPointError("its predictions are not finite")
        except (ValueError, ArithmeticError, np.linalg.LinAlgError, MemoryError) as error:
            return None, excerpt(f"{type(error).__name__} {error}".strip(), 200)
    return Computed(predictions, learner.arrays(), time.perf_counter() - start), ""
