"""What Ray costs: a training of ten seeds with and without it, and how many small tasks one driver keeps up with.

Run: python benchmarks/bench_cluster.py [overhead] [tasks [COUNT]], both by default.

The training takes minutes, so that it is not the start of processes that is timed, though that is in it.
The small tasks train nothing. Each writes a checkpoint and some lines of metrics, which are sent to the driver's machine
as those of a training are; so the numbers say what the driver can take, in requests and bytes per second.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import time

from saute.core.machine import cores
from saute.runs import crew
from saute.runs.build import configured
from saute.runs.config import Config, Experiment
from saute.runs.crew import Job, done_in_turn

TASKS, BYTES, EPOCHS = 2000, 200_000, 50
TRAINING = ["pendulum", "--algo", "trpo", "--preset", "fast", "--seeds", "10", "--epochs", "40"]
TURNS = 2


def written(config: Config, folder: pathlib.Path) -> list[str]:
    """The files of a short training."""
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    (folder / "checkpoints" / "000050.safetensors").write_bytes(os.urandom(BYTES))
    (folder / "policy.safetensors").write_bytes(os.urandom(BYTES // 10))
    (folder / "metrics.jsonl").write_text("x" * 1000 * EPOCHS)
    return []


def tasks(count: int) -> None:
    """So many tasks on a cluster of this machine, whose folders are sent."""
    import ray

    config = configured(Experiment("pendulum", seeds=1))
    ray.init("local", num_cpus=cores(), include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    with tempfile.TemporaryDirectory() as place:
        mirror = crew._here(ray, ray.remote(num_cpus=0)(crew.Mirror)).remote()
        workers = crew._Cluster(ray, 1, mirror)
        jobs = [Job(str(i), config, pathlib.Path(place) / str(i), written) for i in range(count)]
        begin = time.monotonic()
        failed = [result for _, result in done_in_turn(workers, jobs) if isinstance(result, BaseException)]
        seconds = time.monotonic() - begin
        whole = sum(sum(file.stat().st_size for file in job.folder.rglob("*") if file.is_file()) for job in jobs)
    ray.shutdown()
    assert not failed and whole == count * (BYTES + BYTES // 10 + 1000 * EPOCHS), failed[:1]
    print(
        f"{count} tasks in {seconds:.0f} s: {count / seconds:.1f} tasks/s, {2 * count / seconds:.1f} requests/s and "
        f"{whole / seconds / 1e6:.2f} MB/s at the driver"
    )


def overhead() -> None:
    """Seconds of the same training with and without Ray, in turns, and the speed with it as a share of that without."""
    seconds = {"without": [], "with": []}
    with tempfile.TemporaryDirectory() as place:
        for turn in range(TURNS):
            for name, words in (("without", []), ("with", ["--ray"])):
                begin = time.monotonic()
                command = [sys.executable, "-m", "saute", "train", *TRAINING, *words, "--out", f"{place}/{name}-{turn}"]
                subprocess.run(command, check=True, capture_output=True)
                seconds[name].append(time.monotonic() - begin)
                print(f"saute train {' '.join(TRAINING + words)}: {seconds[name][-1]:.0f} s", flush=True)
    alone, shared = seconds["without"], seconds["with"]
    each = ", ".join(f"{a / b:.2f}" for a, b in zip(alone, shared, strict=True))
    print(f"speed with --ray ÷ without: {sum(alone) / sum(shared):.2f}, in single turns {each}")


if __name__ == "__main__":
    try:
        import ray  # noqa: F401
    except ModuleNotFoundError:
        sys.exit("Ray is not installed: pip install 'saute[ray]'")
    words = sys.argv[1:] or ["overhead", "tasks"]
    if "overhead" in words:
        overhead()
    if "tasks" in words:
        tasks(int(words[-1]) if words[-1].isdecimal() else TASKS)
