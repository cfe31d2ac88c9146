"""Run folders from strangers: what they hold is made to run code, to write elsewhere, to fool, to hang and to take memory.

Each attack changes a folder, and commands are given that folder. It is survived if every command ends soon, with a word and
the exit code that is expected, without a traceback, code of the stranger's or much memory, and nothing elsewhere is touched.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import pickle
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from chaos.faults import CONFIG, light
from saute.cli.main import main
from saute.core.files import sealed
from saute.runs.checkpoint import load, save

SECONDS, MEGABYTES = 60, 700
CODE = "import os, pathlib\npathlib.Path(os.environ['CHAOS_RAN']).touch()\n"
READERS = (["evaluate", "--episodes", "2"], ["certify", "--episodes", "2"])
RESUME = (["resume", "--epochs", "2"],)
EXPORT = ["export", "--format", "c", "--out", "policy.c"]
PLOT = (["plot", "curves", "--out", "curves.png"],)
PACKAGES = ("scipy", "mujoco", "PIL", "imageio", "tyro", "jax")
MARKUP = "<img src=x onerror=alert(1)>|**a**"


class Attack(NamedTuple):
    """What a stranger does to a run folder, and the commands that meet it."""

    name: str
    prepare: Callable[[pathlib.Path, pathlib.Path], object]
    """Of the folder, and of one elsewhere that must stay as it is."""
    commands: Sequence[list[str]]
    code: int = 2
    """The exit code that is expected."""


def _config(run: pathlib.Path, reseal: bool = True, **changes: Any) -> None:
    """Change entries of the configuration, with a seal that fits again or not."""
    values = json.loads((run / "config.json").read_text()) | changes
    own = {name: value for name, value in values.items() if name != "sha256"}
    (run / "config.json").write_text(json.dumps(sealed(own) if reseal else values))


def _stripped(run: pathlib.Path, **changes: Any) -> None:
    """Change entries of the configuration, which then looks like one of a former version."""
    values = json.loads((run / "config.json").read_text()) | changes
    del values["sha256"]
    (run / "config.json").write_text(json.dumps(values))


def _hard_link(run: pathlib.Path, elsewhere: pathlib.Path) -> None:
    (run / ".lock").unlink(missing_ok=True)
    (run / ".lock").hardlink_to(elsewhere / "metrics.jsonl")


def _module(run: pathlib.Path, elsewhere: pathlib.Path) -> None:
    (run.parent / "evil.py").write_text(CODE)
    _config(run, env="evil:Env-v0")


def _cost(run: pathlib.Path, elsewhere: pathlib.Path) -> None:
    (run.parent / "evil.py").write_text(CODE)
    _config(run, env="CartPole-v1", cost="evil:cost")


def _link(name: str) -> Callable[[pathlib.Path, pathlib.Path], object]:
    """A name in the folder that leads elsewhere, to what is called the same."""

    def prepare(run: pathlib.Path, elsewhere: pathlib.Path) -> None:
        place = run / name
        if place.is_dir():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
        place.symlink_to(elsewhere / name)

    return prepare


def _instead(name: str, make: Callable[[pathlib.Path], object]) -> Callable[[pathlib.Path, pathlib.Path], object]:
    """Something else in the place of a file."""

    def prepare(run: pathlib.Path, elsewhere: pathlib.Path) -> None:
        (run / name).unlink(missing_ok=True)
        make(run / name)

    return prepare


def _sparse(path: pathlib.Path) -> None:
    with open(path, "wb") as file:
        file.write(b"\xff\xff\xff\x00\x00\x00\x00\x00{")
        file.truncate(6 * 2**30)


def _zeros(path: pathlib.Path) -> None:
    path.symlink_to("/dev/zero")


def _nested(path: pathlib.Path) -> None:
    path.write_text("[" * 200_000 + "\n")


def _lists(path: pathlib.Path) -> None:
    path.write_text('{"a": [' + "[]," * 30_000_000 + "[]]}\n")


def _nested_header(path: pathlib.Path) -> None:
    path.write_bytes((200_000).to_bytes(8, "little") + b"[" * 200_000)


def _huge(path: pathlib.Path) -> None:
    """A header that promises terabytes."""
    entry = {"w": {"dtype": "F32", "shape": [2**20, 2**20], "data_offsets": [0, 2**42]}}
    text = json.dumps(entry | {"__metadata__": {"saute": json.dumps({"meta": "{}", "sha256": "0"})}}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)


class Hostile:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return exec, (CODE,)


def _pickle(path: pathlib.Path) -> None:
    path.write_bytes(pickle.dumps(Hostile()))


def _rewritten(change: Callable[[dict[str, np.ndarray], dict[str, Any]], object]) -> Callable[..., object]:
    """The policies with other content and a checksum that fits it."""

    def prepare(run: pathlib.Path, elsewhere: pathlib.Path) -> None:
        arrays, meta = load(run / "policy.safetensors")
        arrays = {name: array.copy() for name, array in arrays.items()}
        change(arrays, meta)
        save(run / "policy.safetensors", (), meta, **arrays)

    return prepare


def _not_finite(arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
    next(iter(arrays.values()))[...] = np.nan


def _many_seeds(arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
    arrays |= {f"['{seed}'].log_std": np.zeros(1, np.float32) for seed in range(100_000)}


def _deep(arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
    meta["hidden"] = [1] * 1_000_000


def _described(**changes: Any) -> Callable[..., object]:
    return _rewritten(lambda arrays, meta: meta.update(changes))


def _foreign(name: str) -> Callable[[pathlib.Path, pathlib.Path], object]:
    """A file of another training in the place of the run's own."""

    def prepare(run: pathlib.Path, elsewhere: pathlib.Path) -> None:
        arrays, meta = load(run / name)
        save(run / name, (), {**meta, "config": "0" * 64}, **arrays)

    return prepare


def _beside(run: pathlib.Path, elsewhere: pathlib.Path) -> None:
    """Checkpoints that are not ours by name, or that are of an epoch nobody has reached."""
    for name in ("zzz", "1000000", "999999999999"):
        (run / "checkpoints" / f"{name}.safetensors").write_bytes(b"not ours")


LINKS = {".lock": RESUME, "checkpoints": RESUME, "metrics.jsonl": RESUME, "episodes": READERS, "policy.safetensors": RESUME}
REPLACED = ("metrics.jsonl", "policy.safetensors")
"""Links that are replaced by the run's own files, instead of refused; what they led to stays."""
READS = {"config.json": READERS, "policy.safetensors": READERS, "metrics.jsonl": PLOT, "checkpoints/000001.safetensors": RESUME}
"""Stored files, and commands that read them."""
ATTACKS = (
    Attack("a module in the configuration", _module, (*READERS, *RESUME)),
    Attack("a cost function in the configuration", _cost, (*READERS, *RESUME)),
    *(Attack(f"a link {name}", _link(name), commands, 0 if name in REPLACED else 2) for name, commands in LINKS.items()),
    Attack("a link tensorboard", _link("tensorboard"), (["resume", "--epochs", "2", "--log", "tensorboard"],)),
    Attack("a budget edited", lambda run, _: _config(run, False, budget=90.0), (*READERS, *RESUME)),
    Attack("a budget edited and the seal removed", lambda run, _: _stripped(run, budget=90.0), (*READERS, *RESUME)),
    Attack("a budget edited and sealed anew", lambda run, _: _config(run, budget=90.0), (*READERS, *RESUME)),
    Attack("a million seeds, sealed anew", lambda run, _: _config(run, seeds=10**6), (*READERS, *RESUME)),
    Attack("epochs beyond counting", lambda run, _: _config(run, epochs=10**30), (*READERS, *RESUME)),
    Attack("terminal codes in the configuration", lambda run, _: _config(run, method="\x1b[2Jsaute"), READERS),
    *(Attack(f"a pipe as {name}", _instead(name, os.mkfifo), commands) for name, commands in READS.items()),
    *(Attack(f"/dev/zero as {name}", _instead(name, _zeros), commands) for name, commands in READS.items()),
    *(Attack(f"6 GB of nothing as {name}", _instead(name, _sparse), commands) for name, commands in READS.items()),
    *(Attack(f"a folder as {name}", _instead(name, os.mkdir), commands) for name, commands in READS.items()),
    *(Attack(f"a pickle as {name}", _instead(name, _pickle), commands) for name, commands in READS.items()),
    *(Attack(f"nested without end: {name}", _instead(name, _nested), READS[name]) for name in ("config.json", "metrics.jsonl")),
    Attack("a header nested without end", _instead("policy.safetensors", _nested_header), READERS),
    Attack("a policy of terabytes", _instead("policy.safetensors", _huge), READERS),
    Attack("a checkpoint of terabytes", _instead("checkpoints/000001.safetensors", _huge), RESUME),
    Attack("weights that are NaN", _rewritten(_not_finite), READERS),
    Attack("a policy of 100,000 seeds", _rewritten(_many_seeds), READERS),
    Attack("a policy with a layer of 10¹² units", _described(hidden=[10**12]), READERS),
    Attack("a policy of a million layers", _rewritten(_deep), READERS),
    Attack("reference budgets that overflow", _described(reference=[1e300]), (*READERS, EXPORT)),
    Attack("no budget in a list of budgets", lambda run, _: _config(run, budget=[]), (*READERS, *RESUME)),
    Attack("a lock that is a hard link", _hard_link, RESUME),
    *(
        Attack(f"lists beyond counting: {name}", _instead(name, _lists), READS[name])
        for name in ("config.json", "metrics.jsonl")
    ),
    Attack("a policy with negative sizes", _described(observations=-1), READERS),
    Attack("a policy without a description", _described(low=None, high=None, discrete=None), READERS),
    Attack("a policy of another training", _foreign("policy.safetensors"), READERS),
    Attack("a checkpoint of another training", _foreign("checkpoints/000001.safetensors"), RESUME),
    Attack("other files beside checkpoints", _beside, RESUME, 0),
)


def made(place: pathlib.Path) -> pathlib.Path:
    """A genuine run folder of one epoch, which all attacks begin with."""
    words = ["train", "pendulum", "--seeds", "1", "--epochs", "1", "--settings.steps-per-epoch", "400", "--out"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert main([*words, str(place / "genuine")]) == 0
    return place / "genuine"


def untrained(place: pathlib.Path) -> pathlib.Path:
    """A run folder whose policies have learnt nothing, which is enough where they are refused."""
    import jax

    from saute.core.protocol import spec_of
    from saute.learn.nets import policy_for
    from saute.runs.build import environment_of
    from saute.runs.trained import policy_description, save_policies

    light(place / "genuine")
    spec = spec_of(environment_of(CONFIG))
    net = policy_for(spec.observation_space, spec.action_space, (8,))
    description = {**policy_description(spec, net, 4), "config": CONFIG.digest}
    save_policies(place / "genuine/policy.safetensors", [net.init(jax.random.key(i)) for i in range(2)], description)
    return place / "genuine"


def attacked(place: pathlib.Path, short: bool) -> Iterator[str | None]:
    """Every attack on a folder of its own; in short, only those that are refused before anything is trained or tested."""
    genuine = (untrained if short else made)(place)
    refused = [one._replace(commands=one.commands[:1]) for one in ATTACKS if one.name != "a link episodes"]
    for number, attack in enumerate([one for one in refused if one.commands[0] in (READERS[0], PLOT[0])] if short else ATTACKS):
        yield survived(attack, genuine, place / str(number))


def planted(place: pathlib.Path) -> Iterator[str | None]:
    """Files in the current folder that are called like installed packages, while a module of the user's is imported there."""
    for name in PACKAGES:
        (place / f"{name}.py").write_text(CODE)
    (place / "mine.py").write_text("act = lambda obs: 0.0 * obs[:1]\n")
    (place / "bin").mkdir()
    (place / "bin" / "saute").write_text("import saute_command, sys\nsys.exit(saute_command.main())\n")
    words = [sys.executable, "bin/saute", "watch", "pendulum", "--policy", "mine:act", "--steps", "2", "--out", "film.gif"]
    env = {**os.environ, "CHAOS_RAN": str(place / "ran")}
    done = subprocess.run(words, cwd=place, env=env, capture_output=True, text=True, check=False)
    fault = f"watch failed: {done.stderr[-200:]}" if done.returncode else None
    yield from [f"the file {name}.py ran" if (place / "ran").exists() else fault for name in PACKAGES]


def survived(attack: Attack, genuine: pathlib.Path, place: pathlib.Path) -> str | None:
    """What is wrong after an attack."""
    run, elsewhere, ran = place / MARKUP.replace("/", ""), place / "elsewhere", place / "ran"
    shutil.copytree(genuine, run)
    shutil.copytree(genuine, elsewhere, symlinks=True)
    for folder in ("episodes", "tensorboard"):
        (elsewhere / folder).mkdir(exist_ok=True)
    before = _seen(elsewhere)
    attack.prepare(run, elsewhere)
    os.environ["CHAOS_RAN"] = str(ran)
    fault = None
    with contextlib.chdir(place):
        for words in attack.commands:
            fault = fault or _obeyed(attack, [words[0], *_placed(words[1:], run)])
    if ran.exists():
        fault = "code of the stranger's ran"
    if _seen(elsewhere) != before:
        fault = "something elsewhere was changed"
    shutil.rmtree(place)
    return fault and f"{attack.name}: {fault}"


def _placed(words: list[str], run: pathlib.Path) -> list[str]:
    """The options with the run folder where it belongs: before them, after the kind of a plot."""
    at = 1 if words[:1] == ["curves"] else 0
    return [*words[:at], str(run), *words[at:]]


def _seen(folder: pathlib.Path) -> dict[str, Any]:
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return {str(file): (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


class Late(BaseException):
    """A command that does not end."""


def _late(number: int, frame: object) -> None:
    raise Late


def _obeyed(attack: Attack, words: list[str]) -> str | None:
    """What is wrong with how a command ended."""
    said, told = io.StringIO(), io.StringIO()
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(SECONDS)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(said):
            code = main(words)
    except Late:
        return f"{words[0]} hangs"
    except Exception as problem:
        return f"{words[0]} ends with a raw {type(problem).__name__}: {problem}"
    finally:
        signal.alarm(0)
    taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    if taken > MEGABYTES:
        return f"{words[0]} took {taken} MB"
    if code != attack.code:
        return f"{words[0]} ended with {code}: {said.getvalue()[-200:]}"
    return "nothing is said" if code and "error:" not in said.getvalue() else None
