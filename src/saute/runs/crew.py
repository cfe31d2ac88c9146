"""Who trains several run folders at once: processes of this machine, or Ray's on one machine or many."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import io
import logging
import multiprocessing
import os
import pathlib
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple, Protocol

from saute.core.errors import UserError
from saute.core.machine import cores
from saute.core.stopping import SIGNALS, guarded, leave, send
from saute.runs.config import Config
from saute.runs.folder import TrainingError
from saute.runs.holding import holder_of
from saute.runs.mirror import Mirror, mirrored
from saute.runs.report import unlike, versions

__all__ = ["Crew", "Job", "Work", "crew_of", "done_in_turn", "end_with_parent", "trained"]

Work = Callable[[Config, pathlib.Path], list[str]]
"""What is done with a run folder, which goes on from where that stands; what it gives are notes for the user."""
LOOK = 1.0
"""Seconds from one look at what the jobs have come to, to the next."""
REACHED = 5.0
"""Seconds in which a cluster has to answer."""

SETTINGS, KIND = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]), slice(3, 4)
"""An empty frame of settings, with which both sides of HTTP/2 begin, and where a frame says of what kind it is (RFC 9113)."""

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",
    "RAY_worker_register_timeout_seconds": "600",
}
"""What is told to a Ray of this machine: to report nothing, and that workers are as urgent as we are, and may start slowly."""


class Job(NamedTuple):
    """A run folder to be finished."""

    title: str
    config: Config
    folder: pathlib.Path
    work: Work


class Crew(Protocol):
    """Whoever does jobs, each with so many cores, several at once."""

    @property
    def slots(self) -> int:
        """How many jobs are done at once."""

    def submit(self, job: Job) -> Future[list[str]]:
        """Begin a job, or let it wait for its turn."""

    def drop(self, job: Job) -> None:
        """Stop a job at once; its folder can be continued."""


@contextlib.contextmanager
def crew_of(address: str | None, each: int = 1, storage: pathlib.Path | None = None) -> Iterator[Crew]:
    """Ray's workers at an address, on this machine if it is empty; processes if it is None or, here, if Ray is missing.

    `each` is the number of cores of a job. Where all machines share the `storage` that the folders are in, jobs are done in
    place; where they do not, what they write is sent to this machine.
    """
    if each < 1:
        raise UserError(f"--cores {each} must be at least 1")
    if address is None or (not address and not _has_ray()):
        if address is not None:
            print(
                "note: ray is not installed (pip install 'saute[ray]'); training in processes of this machine", file=sys.stderr
            )
        with _processes(each) as crew:
            yield crew
        return
    with _cluster(address, each, storage) as cluster:
        yield cluster


def _has_ray() -> bool:
    return importlib.util.find_spec("ray") is not None


def done_in_turn(
    crew: Crew, jobs: Iterable[Job], look: Callable[[], object] = lambda: None, most: int | None = None
) -> Iterator[tuple[Job, list[str] | BaseException]]:
    """Every job as it ends, with its notes or what went wrong; at most so many are begun before others have ended."""
    coming, under_way = iter(jobs), dict[Future[list[str]], Job]()
    try:
        while True:
            while (most is None or len(under_way) < most) and (job := next(coming, None)) is not None:
                under_way[crew.submit(job)] = job
            if not under_way:
                return
            ended, _ = wait(under_way, LOOK, FIRST_COMPLETED)
            look()
            for future in ended:
                problem = future.exception()
                yield under_way.pop(future), future.result() if problem is None else problem
    finally:
        for job in under_way.values():
            crew.drop(job)


def trained(config: Config, folder: pathlib.Path) -> list[str]:
    """Train a run folder to its end."""
    from saute.runs.loop import run

    notes: list[str] = []
    run(config, folder, advise=notes.append)
    return notes


@dataclasses.dataclass
class _Processes:
    """A fresh process for every job, because XLA's threads do not survive a fork."""

    each: int
    slots: int
    pool: ThreadPoolExecutor
    running: dict[pathlib.Path, Any]
    ending: bool = False

    def submit(self, job: Job) -> Future[list[str]]:
        return self.pool.submit(self._done, job)

    def drop(self, job: Job) -> None:
        process = self.running.get(job.folder)
        if process is not None:
            process.terminate()

    def _done(self, job: Job) -> list[str]:
        context = multiprocessing.get_context("spawn")
        told, tell = context.Pipe(duplex=False)
        process = context.Process(target=_quietly, args=(job, self.each, tell))
        process.start()
        self.running[job.folder] = process
        tell.close()
        if self.ending:
            process.terminate()
        try:
            said = told.recv()
        except EOFError:
            said = None
        process.join()
        del self.running[job.folder]
        if isinstance(said, list):
            return said
        raise TrainingError(said or f"its process ended with code {process.exitcode} (was it killed, or out of memory?)")


@contextlib.contextmanager
def _processes(each: int) -> Iterator[_Processes]:
    slots = max(1, cores() // each)
    crew = _Processes(each, slots, ThreadPoolExecutor(slots), {})
    try:
        yield crew
    finally:
        crew.ending = True
        crew.pool.shutdown(wait=False, cancel_futures=True)
        for process in list(crew.running.values()):
            process.terminate()
        crew.pool.shutdown()


def _quietly(job: Job, threads: int, tell: Any) -> None:
    """Do a job without a progress bar, because a terminal can show only one at a time; an error is told to the parent."""
    os.environ.update(_threads(threads))
    end_with_parent()
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            tell.send(job.work(job.config, job.folder))
        except KeyboardInterrupt:
            leave()
        except Exception as problem:
            tell.send(f"{type(problem).__name__}: {problem}")


def end_with_parent() -> None:
    """Stop a worker when the process that started it ends, in whatever way; its run is saved first."""

    def watch() -> None:
        multiprocessing.parent_process().join()  # type: ignore[union-attr]
        send(signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    guarded().__enter__()  # as long as the worker lives


def _threads(count: int) -> dict[str, str]:
    """What tells XLA, the libraries of linear algebra, and `cores`, how many threads they may have."""
    return dict.fromkeys(("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(count))


@dataclasses.dataclass
class _Cluster:
    """Ray's tasks: they are begun again for ever if their machine is lost, and never if they fail by themselves."""

    ray: Any
    each: int
    mirror: Any
    """Where what they write is sent to, unless they write to a shared storage."""
    refs: dict[pathlib.Path, Any] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def task(self) -> Any:
        return self.ray.remote(max_retries=-1, retry_exceptions=False, num_cpus=self.each)(_in_worker)

    @functools.cached_property
    def expected(self) -> dict[str, Any]:
        return versions()

    @property
    def slots(self) -> int:
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)) // self.each)

    def submit(self, job: Job) -> Future[list[str]]:
        ref = self.refs[job.folder] = self.task.remote(job, self.mirror, self.expected)
        outer: Future[list[str]] = Future()
        ref.future().add_done_callback(functools.partial(_passed_on, outer))
        return outer

    def drop(self, job: Job) -> None:
        self.ray.cancel(self.refs[job.folder], force=True)


def _passed_on(outer: Future[list[str]], inner: Future[list[str]]) -> None:
    """The result, or the problem as it was in the worker, without Ray's traceback around it."""
    problem = inner.exception()
    if problem is None:
        outer.set_result(inner.result())
        return
    cause = getattr(problem, "cause", problem)
    ours = isinstance(cause, UserError | TrainingError)
    outer.set_exception(TrainingError(str(cause) if ours else f"{type(cause).__name__}: {cause}"))


@contextlib.contextmanager
def _cluster(address: str, each: int, storage: pathlib.Path | None) -> Iterator[_Cluster]:
    import ray

    _refuse_unreachable(address)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    here: dict[str, Any] = {} if address else {"num_cpus": cores(), "include_dashboard": False}
    obeyed = {one: signal.getsignal(one) for one in SIGNALS}
    # A cluster starts workers anew for another environment; those of this machine have it from the beginning.
    environment = {"env_vars": _threads(each)} if address else {}
    try:
        with _environment({} if address else _threads(each)):
            ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, runtime_env=environment, **here)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as problem:
        raise UserError(
            f"--ray {address}: {' '.join(str(problem).split())}; this machine needs the same Ray and Python as the cluster, "
            "and its token if it has one (ray get-auth-token)"
        ) from problem
    finally:
        if threading.current_thread() is threading.main_thread():
            for one, handler in obeyed.items():  # Ray's own would end this process without a word
                signal.signal(one, handler)
    try:
        if address or storage is not None:  # this machine alone is not asked whether it is like itself
            _refuse_odd_nodes(ray, storage)
        if each > max(node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]):
            raise UserError(f"--cores {each} is more than any machine of the cluster has")
        # On one machine, workers write where this process reads.
        sent = storage is None and address != ""
        mirror = _here(ray, ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Mirror)).remote() if sent else None
        yield _Cluster(ray, each, mirror)
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables that processes which are started inside are born with."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            os.environ.pop(name)
        os.environ.update(before)


def _here(ray: Any, remote: Any, node: str | None = None) -> Any:
    """A task or an actor that runs on one machine of the cluster, by default on this one."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    node = node or ray.get_runtime_context().get_node_id()
    return remote.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False))


def _refuse_unreachable(address: str) -> None:
    """An address at which no Ray answers is refused at once; Ray would try for minutes."""
    if address in ("", "auto"):
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise UserError(f"--ray {address} is not an address; pass HOST:PORT, as `ray start --head` prints it, or auto")
    fix = "start a cluster with ray start --head, and name the address that it prints"
    try:
        answered = _answers(host, int(port))
    except (OSError, OverflowError) as problem:
        raise UserError(f"--ray {address} cannot be reached ({problem}); {fix}") from problem
    if not answered:
        raise UserError(f"--ray {address} is reached, but what answers there is not Ray; {fix}")


def _answers(host: str, port: int) -> bool:
    """Whether a server speaks Ray's protocol, which is HTTP/2; one that encrypts it is believed to."""
    with socket.create_connection((host, port), REACHED) as connection:
        if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
            return True
        connection.settimeout(REACHED)
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS)
        return connection.recv(len(SETTINGS))[KIND] == SETTINGS[KIND]


def _refuse_odd_nodes(ray: Any, storage: pathlib.Path | None) -> None:
    """Every machine has to have the same packages, and to see the storage, before anything is begun."""
    probe = None
    if storage is not None:
        try:
            storage.mkdir(parents=True, exist_ok=True)
            probe = storage / f".probe-{os.getpid()}"
            probe.write_text(socket.gethostname())
        except OSError as problem:
            raise UserError(
                f"--storage {storage} cannot be written to ({problem.strerror}); choose another folder"
            ) from problem
    names = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
    task = ray.remote(num_cpus=0, max_retries=0)(_told_of_node)
    asked = [(name, _here(ray, task, node).remote(versions(), probe)) for node, name in names.items()]
    try:
        for name, ref in asked:
            try:
                odd = ray.get(ref)
            except ray.exceptions.RayError as problem:
                cause = getattr(problem, "cause", problem)
                odd = f"it cannot run saute ({type(cause).__name__}: {' '.join(str(cause).split())[:300]})"
            if odd is not None:
                raise UserError(f"machine {name} of the cluster: {odd}")
    finally:
        if probe is not None:
            probe.unlink(missing_ok=True)


def _told_of_node(expected: dict[str, Any], probe: pathlib.Path | None) -> str | None:
    """What is wrong with a machine, asked on it."""
    odd = unlike(versions(), expected)
    if odd is not None or probe is None:
        return odd
    if not probe.exists():
        return f"it does not see {probe.parent}; --storage has to be a folder that all machines share"
    try:
        probe.write_text(socket.gethostname())
    except OSError as problem:
        return f"it cannot write to {probe.parent} ({problem.strerror}); let it, or choose another --storage"
    return None


def _in_worker(job: Job, mirror: Any, expected: dict[str, Any]) -> list[str]:
    """A job on whatever machine it was given to, which an error names."""
    odd = unlike(versions(), expected)
    if odd is not None:
        raise UserError(f"machine {socket.gethostname()} of the cluster: {odd}")
    try:
        return _done(job, mirror)
    except TrainingError as problem:
        raise TrainingError(f"on machine {socket.gethostname()}: {getattr(problem, 'cause', problem)}") from None


def _done(job: Job, mirror: Any) -> list[str]:
    """A job in the folder itself, or in a copy of it that is sent on as it grows."""
    if mirror is not None:
        with mirrored(job.folder, mirror) as copy:
            return job.work(job.config, copy)
    # Whoever was lost in it may not know yet.
    while holder_of(job.folder) is not None:
        time.sleep(LOOK)
    return job.work(job.config, job.folder)
