"""Seeds in shards, with processes and with Ray: the same bytes as one process writes, whatever is lost on the way."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from saute.cli.main import main
from saute.core.errors import UserError
from saute.runs import crew, holding, mirror
from saute.runs.build import configured
from saute.runs.checkpoint import numbered
from saute.runs.config import Experiment
from saute.runs.crew import Job, trained
from saute.runs.folder import TrainingError, exclusively, finished
from saute.runs.mirror import Mirror, _news, mirrored
from saute.runs.report import unlike, versions
from saute.runs.shards import shards_of
from saute.runs.state import standing_of

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "cluster.md"
SHORT = ["pendulum", "--algo", "ppo", "--settings.steps-per-epoch", "400", "--settings.policy-iterations", "3"]


def content(run: pathlib.Path) -> dict[str, bytes]:
    """All that one process leaves in a folder, but for its older checkpoint, which is a matter of time."""
    older = numbered(run / "checkpoints")[:-1]
    files = [file for file in run.rglob("*") if file.is_file() and file not in older and file.name != ".lock"]
    return {str(file.relative_to(run)): file.read_bytes() for file in files}


def alone(words: list[str], out: pathlib.Path) -> subprocess.Popen[bytes]:
    """The same training in one process, with one thread."""
    command = [sys.executable, "-m", "saute", "train", *words, "--out", str(out)]
    return subprocess.Popen(command, env={**os.environ, "NPROC": "1"})


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("alone") / "run"
    assert alone([*SHORT, "--seeds", "3", "--epochs", "2"], out).wait() == 0
    return content(out)


@pytest.mark.parametrize("engine", ["processes", "ray"])
def test_shards_are_put_together_as_if_one_process_had_trained_all(short, tmp_path, monkeypatch, capsys, engine: str) -> None:
    if engine == "ray":
        pytest.importorskip("ray", reason="pip install 'saute[ray]'")
    monkeypatch.setattr(crew, "_has_ray", lambda: engine == "ray")
    monkeypatch.setattr(crew, "cores", lambda: 2)
    assert main(["train", *SHORT, "--seeds", "3", "--epochs", "2", "--ray", "--out", str(tmp_path / "run")]) == 0
    assert content(tmp_path / "run") == short
    capsys.readouterr()
    assert main(["runs", str(tmp_path)]) == 0
    line = capsys.readouterr().out.splitlines()[1].split()
    assert line[:3] == ["run", "finished", "2/2"] and "of" in line and "so" in line
    assert main(["train", *SHORT, "--seeds", "3", "--epochs", "2", "--ray", "--out", str(tmp_path / "run")]) == 0
    assert content(tmp_path / "run") == short, "what is finished is not trained again"


def test_a_training_that_was_begun_keeps_its_shards(tmp_path) -> None:
    config = configured(Experiment("pendulum", seeds=7, seed=5))
    first = shards_of(config, tmp_path, 3)
    assert [(one.experiment.seed, one.experiment.seeds) for one in first.values()] == [(5, 3), (8, 3), (11, 1)]
    for folder, own in first.items():
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(own.as_json()))
    assert shards_of(config, tmp_path, 1) == first


def test_what_was_begun_one_way_is_not_continued_in_the_other(tmp_path, capsys) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    config = configured(Experiment("pendulum", "ppo", seeds=1, epochs=3))
    (run / "config.json").write_text(json.dumps(config.as_json()))
    (run / "checkpoints" / "000001.safetensors").write_bytes(b"")
    assert main(["resume", str(run), "--ray"]) == 2
    assert "was begun without --ray" in capsys.readouterr().err
    (run / "shards").mkdir()
    assert main(["resume", str(run)]) == 2
    assert f"continue it with saute resume {run} --ray" in capsys.readouterr().err


def test_a_folder_is_held_by_one_process_and_free_when_that_is_lost(tmp_path, monkeypatch) -> None:
    assert holding.holder_of(tmp_path) is None
    with exclusively(tmp_path):
        found = holding.holder_of(tmp_path)
        assert found is not None and found.pid == os.getpid()
        with pytest.raises(TrainingError, match=f"with number {os.getpid()} on "), exclusively(tmp_path):
            pass
    assert not (tmp_path / holding.MARK).exists()
    mark = found._replace(pid=2**30)  # of a process that there cannot be
    (tmp_path / holding.MARK).write_text(json.dumps(mark._asdict()))
    assert holding.holder_of(tmp_path) is None, "it was of this machine, so it is known to be lost"
    (tmp_path / holding.MARK).write_text(json.dumps(mark._replace(host="another")._asdict()))
    with pytest.raises(TrainingError, match="on another; wait for it"), exclusively(tmp_path):
        pass
    old = time.time() - 2 * holding.STALE
    os.utime(tmp_path / holding.MARK, (old, old))
    with exclusively(tmp_path) as ours:
        assert ours()
        (tmp_path / holding.MARK).write_text(json.dumps(mark._asdict()))
        assert not ours(), "another process has taken it"


def test_without_locks_the_mark_stands_alone(tmp_path, monkeypatch) -> None:
    def none(*_: Any) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", none)
    with exclusively(tmp_path), pytest.raises(TrainingError, match="another process is training"), exclusively(tmp_path):
        pass


def test_a_mirror_follows_a_folder_and_asks_for_what_it_lacks(tmp_path) -> None:
    worker, here, follower, sent = tmp_path / "worker", tmp_path / "here", Mirror(), dict[str, tuple[int, int]]()
    (worker / "checkpoints").mkdir(parents=True)

    def follow() -> tuple[dict[str, int], list[str]]:
        pieces, sizes = _news(worker, sent)
        return {name: len(piece.content) for name, piece in pieces.items()}, follower.follow(here, pieces, sizes)

    (worker / "metrics.jsonl").write_text("one\n")
    (worker / "checkpoints" / "000001.safetensors").write_text("first")
    (worker / ".lock").write_text("")
    assert follow() == ({"metrics.jsonl": 4, "checkpoints/000001.safetensors": 5}, [])
    assert follow() == ({}, []), "what has not changed is not sent again"
    (worker / "metrics.jsonl").write_text("one\ntwo!\n")
    (worker / "checkpoints" / "000001.safetensors").unlink()
    (worker / "checkpoints" / "000002.safetensors").write_text("second")
    assert follow() == ({"metrics.jsonl": 5, "checkpoints/000002.safetensors": 6}, []), "of metrics only what is new"
    assert follower.fetch(here) == {"metrics.jsonl": b"one\ntwo!\n", "checkpoints/000002.safetensors": b"second"}
    (here / "checkpoints" / "000002.safetensors").unlink()
    assert follow() == ({}, ["checkpoints/000002.safetensors"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ray", "127.0.0.1:9"], "--ray 127.0.0.1:9 cannot be reached"),
        (["--ray", "nowhere"], "--ray nowhere is not an address; pass HOST:PORT"),
        (["--ray", "a:1", "b:2"], "--ray a:1 b:2: name one address"),
        (["--storage", "shared"], "--storage shared is for the machines of a cluster"),
        (["--ray", "--storage", "shared", "--out", "/elsewhere/run"], "is not in --storage shared, which"),
        (["--ray", "--init", "other"], "--init is not for --ray"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(words, message, tmp_path, monkeypatch, capsys) -> None:
    if "127.0.0.1:9" in words:
        pytest.importorskip("ray", reason="pip install 'saute[ray]'")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "pendulum", *words]) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.rglob("*.json*"))


@pytest.mark.parametrize("reply", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""], ids=["another server", "nothing"])
def test_what_answers_but_is_not_ray_is_refused_at_once(reply: bytes, tmp_path: pathlib.Path, monkeypatch, capsys) -> None:
    """Ray itself would wait for it for minutes."""
    pytest.importorskip("ray", reason="pip install 'saute[ray]'")

    def answer() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(64)
            connection.sendall(reply)

    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert main(["train", "pendulum", "--ray", address]) == 2
    assert f"--ray {address} is reached, but what answers there is not Ray" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.json*"))


def test_a_machine_says_what_is_wrong_with_its_storage(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = tmp_path / "probe"
    assert crew._told_of_node(versions(), probe) == (
        f"it does not see {tmp_path}; --storage has to be a folder that all machines share"
    )
    probe.write_text("")
    assert crew._told_of_node(versions(), probe) is None and probe.read_text() == socket.gethostname()

    def refused(*_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(pathlib.Path, "write_text", refused)
    assert f"it cannot write to {tmp_path} (Read-only file system)" in (crew._told_of_node(versions(), probe) or "")


def test_a_machine_that_joins_later_with_other_versions_does_nothing(tmp_path: pathlib.Path) -> None:
    job = Job("seeds", configured(Experiment("pendulum")), tmp_path / "run", trained)
    with pytest.raises(UserError, match=rf"machine {socket.gethostname()} of the cluster: it has optax .* instead of 0\.1"):
        crew._in_worker(job, None, {**versions(), "optax": "0.1"})
    assert not job.folder.exists()


def test_work_is_stopped_when_what_it_writes_cannot_be_sent(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would go on for hours, and at the end there would be nothing."""

    class Full:
        """Ray, and a mirror on a machine whose disk is full."""

        fetch = follow = property(lambda self: self)

        def remote(self, folder: pathlib.Path, *sent: Any) -> Any:
            return Mirror().follow(folder, *sent) if sent else {}

    def no_room(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get=lambda value: value))
    monkeypatch.setattr(mirror, "SENT", 0.05)
    monkeypatch.setattr(mirror, "write_atomically", no_room)
    match = r"run on .* \(No space left on device\); what was sent before is kept, make room"
    with pytest.raises(TrainingError, match=match), mirrored(tmp_path / "run", Full()) as copy:
        copy.mkdir()
        (copy / "metrics.jsonl").write_text("one\n")
        time.sleep(60)
    assert not copy.exists() and not list((tmp_path / "run").iterdir())


def test_other_versions_on_a_machine_are_named() -> None:
    here = versions()
    assert unlike({**here, "cores": 99}, here) is None
    odd = unlike({**here, "jax": "0.1", "python": "3.9"}, here)
    assert odd is not None and f"python 3.9 instead of {here['python']}, jax 0.1 instead of {here['jax']}" in odd


LOSSES = [*SHORT, "--settings.value-iterations", "5", "--seeds", "20", "--epochs", "150"]


@contextlib.contextmanager
def cluster() -> Iterator[Any]:
    """A head that trains nothing, and two machines of one core each, all on this one."""
    pytest.importorskip("ray", reason="pip install 'saute[ray]'")
    from ray.cluster_utils import Cluster

    for name, value in crew.QUIET.items():
        os.environ.setdefault(name, value)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        made.nodes = [made.add_node(num_cpus=1) for _ in range(2)]
        yield made
    finally:
        made.shutdown()


def until(found: Callable[[], Any], seconds: float = 600.0) -> Any:
    """What is waited for."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (value := found()) is not None:
            return value
        time.sleep(0.2)
    raise AssertionError("it has not come")


def process_of(made: Any, name: str) -> int:
    """A worker of the cluster by the name that Ray gives to its process."""
    parents = {one.process.pid for node in (made.head_node, *made.nodes) for one in node.all_processes["raylet"]}
    for place in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent in parents and (place / "cmdline").read_bytes().startswith(name.encode()):
                return int(place.name)
    raise AssertionError(f"there is no {name}")


def checkpoint_of(shard: pathlib.Path, after: int = 0) -> int | None:
    """The epoch of a shard's newest checkpoint, if it is later and not yet the last one."""
    epochs = [int(file.stem) for file in numbered(shard / "checkpoints")]
    return epochs[-1] if epochs and epochs[-1] > after else None


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True], ids=["sent to the driver", "in a shared storage"])
def test_a_machine_a_worker_and_the_driver_are_lost_and_nothing_else(tmp_path: pathlib.Path, shared: bool) -> None:
    undisturbed, out = alone(LOSSES, tmp_path / "alone"), tmp_path / "storage" / "run"
    with cluster() as made:
        place = ["--storage", str(tmp_path / "storage")] if shared else []
        words = [sys.executable, "-m", "saute", "train", *LOSSES, "--ray", made.address, "--out", str(out), *place]
        driver = subprocess.Popen(words)
        shards = [out / "shards" / name for name in ("0000", "0010")]
        seen = [until(lambda shard=shard: checkpoint_of(shard)) for shard in shards]
        os.kill(until(lambda: holding.holder_of(shards[0])).pid, signal.SIGKILL)
        if not shared:
            os.kill(process_of(made, "ray::Mirror"), signal.SIGKILL)
        seen[0] = until(lambda: checkpoint_of(shards[0], seen[0]))
        made.remove_node(made.nodes[1], allow_graceful=False)
        made.add_node(num_cpus=1)
        seen = [until(lambda i=i: checkpoint_of(shards[i], seen[i])) for i in range(2)]
        driver.kill()
        driver.wait()
        assert not any(map(finished, shards)), "there was something left to do"
        assert standing_of(out).epochs >= min(seen)
        subprocess.run(words, check=True)
    assert undisturbed.wait() == 0
    assert content(out) == content(tmp_path / "alone")


SRUN = """#!/bin/bash
# As SLURM's on one machine: what it is told of nodes is left out.
while [[ "$1" == -* ]]; do [[ "$1" == -w ]] && shift; shift; done
exec "$@"
"""


@contextlib.contextmanager
def own_ray() -> Iterator[pathlib.Path]:
    """A folder for Ray's files, whose name is short enough for its sockets; all processes that have it in their words end."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as place:
        try:
            yield pathlib.Path(place)
        finally:
            for process in pathlib.Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):  # it has ended
                    if place.encode() in (process / "cmdline").read_bytes():
                        os.kill(int(process.name), signal.SIGKILL)


@pytest.mark.slow
def test_the_recipe_for_slurm_trains(tmp_path: pathlib.Path) -> None:
    """As the page has it, but for SLURM itself: with a token, on a head and a machine that are both this one."""
    pytest.importorskip("ray", reason="pip install 'saute[ray]'")
    recipe = PAGE.read_text().partition("```bash\n#!/bin/bash\n#SBATCH")[2].partition("```")[0].partition("\n")[2]
    short = " ".join([*SHORT, "--seeds", "4", "--epochs", "3"])
    for there, here in (("pendulum --seeds 1000", short), ("--num-cpus=32", "--num-cpus=1"), ("6379", "6390")):
        assert there in recipe
        recipe = recipe.replace(there, here)
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    (tmp_path / "token").write_text(secrets.token_hex(16))
    path = f"{tmp_path}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    with own_ray() as place:
        own = {"SCRATCH": str(tmp_path), "RAY_TMPDIR": str(place), "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")}
        words = ["bash", "-c", recipe]
        with open(tmp_path / "said", "w+") as said:  # not a pipe, which machines that still run would keep open
            done = subprocess.run(words, env={**os.environ, "PATH": path, **own}, stdout=said, stderr=said)
        assert done.returncode == 0, (tmp_path / "said").read_text()
    undisturbed = alone([*SHORT, "--seeds", "4", "--epochs", "3"], tmp_path / "alone")
    assert undisturbed.wait() == 0
    assert content(tmp_path / "runs" / "pendulum-saute-ppo") == content(tmp_path / "alone")


@pytest.mark.slow
def test_an_odd_machine_is_named_before_anything_is_written(tmp_path: pathlib.Path) -> None:
    """One with another package, one without saute, and a storage that is another folder on it."""
    optax = tmp_path / "other" / "optax-9.9.dist-info" / "METADATA"
    bare = tmp_path / "bare" / "saute.py"
    for file, content in ((optax, "Metadata-Version: 2.1\nName: optax\nVersion: 9.9\n"), (bare, "")):
        file.parent.mkdir(parents=True)
        file.write_text(content)
    # Everyone's own folder; that of a machine is where its processes are, which is not ours.
    place = tmp_path / "place"
    place.mkdir()
    own = "/proc/self/cwd/shared"
    with cluster() as made:

        def told(*more: str) -> str:
            words = [sys.executable, "-m", "saute", "train", *SHORT, "--ray", made.address, *more]
            done = subprocess.run(words, cwd=place, capture_output=True, text=True)
            assert done.returncode == 2 and not list(place.rglob("*.json*")), done.stderr
            return done.stderr

        assert f"does not see {own}; --storage has to be a folder that all machines share" in told("--storage", own)
        for path, message in (("other", "it has optax 9.9 instead of"), ("bare", "it cannot run saute (")):
            odd = made.add_node(num_cpus=1, env_vars={"PYTHONPATH": str(tmp_path / path)})
            said = told()
            assert f"machine {socket.gethostname()} of the cluster: {message}" in said, said
            made.remove_node(odd, allow_graceful=False)


@contextlib.contextmanager
def small_disk(at: pathlib.Path, size: str) -> Iterator[Callable[[str], object]]:
    """A disk of its own at a folder; what it gives makes it larger."""
    at.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at)]
    if os.geteuid() or subprocess.run(mounted, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield lambda larger: subprocess.run(["mount", "-o", f"remount,size={larger}", str(at)], check=True)
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True], ids=["sent to the driver", "in a shared storage"])
def test_a_full_disk_ends_it_with_a_word_and_nothing_is_lost(tmp_path: pathlib.Path, shared: bool) -> None:
    words = [*SHORT, "--seeds", "6", "--epochs", "40"]
    undisturbed, out = alone(words, tmp_path / "alone"), tmp_path / "disk" / "run"
    with small_disk(tmp_path / "disk", "1m") as enlarge, cluster() as made:
        place = ["--storage", str(tmp_path / "disk")] if shared else []
        command = [sys.executable, "-m", "saute", "train", *words, "--ray", made.address, "--out", str(out), *place]
        done = subprocess.run(command, capture_output=True, text=True)
        said = done.stderr
        assert done.returncode == 2 and "cannot write to" in said and "(No space left on device)" in said, said
        assert f"on machine {socket.gethostname()}" in said and "make room" in said, said
        enlarge("64m")
        subprocess.run(command, check=True)
        assert undisturbed.wait() == 0
        assert content(out) == content(tmp_path / "alone")


@pytest.mark.slow
def test_a_reproduction_goes_on_when_a_worker_and_the_driver_are_lost(tmp_path: pathlib.Path) -> None:
    words = ["reproduce", "ablation-pendulum", "--scale", "smoke", "--episodes", "5"]

    def command(place: pathlib.Path, *more: str) -> list[str]:
        out = ["--runs", str(place / "runs"), "--out", str(place / "results")]
        return [sys.executable, "-m", "saute", *words, *out, *more]

    undisturbed = subprocess.Popen(command(tmp_path / "alone"), env={**os.environ, "NPROC": "1"})
    with cluster() as made:
        driver = subprocess.Popen(command(tmp_path / "ray", "--ray", made.address))

        def begun() -> Any:
            marks = list((tmp_path / "ray" / "runs").glob(f"*/{holding.MARK}"))
            return next(filter(None, (holding.holder_of(mark.parent) for mark in marks)), None)

        os.kill(until(begun).pid, signal.SIGKILL)
        until(begun)
        driver.kill()
        driver.wait()
        subprocess.run(command(tmp_path / "ray", "--ray", made.address), check=True)
    assert undisturbed.wait() == 0
    runs = sorted(run.name for run in (tmp_path / "alone" / "runs").iterdir())
    assert len(runs) == 3
    for run in runs:
        ours, theirs = (content(tmp_path / which / "runs" / run) for which in ("ray", "alone"))
        assert ours | {"seconds.json": b""} == theirs | {"seconds.json": b""}, run
