"""What is kept stays whole and its own: full disks, links, folders from strangers, odd names and outputs, former layouts."""

from __future__ import annotations

import errno
import io
import itertools
import json
import os
import pathlib
import re
import shutil
import socket
import stat
import subprocess
import sys
from functools import partial
from typing import Any

import filelock
import gymnasium as gym
import jax
import numpy as np
import pytest
from chaos.faults import CONFIG, EPOCHS, content, light
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from learner_toys import Slope
from toys import Scripted, sauted

import saute
from saute.cli import certify as certifying
from saute.cli.main import main
from saute.core.errors import UserError
from saute.core.files import PART, read_sealed, replacing, write_atomically, write_sealed
from saute.core.modules import module_named
from saute.core.options import options
from saute.runs import evaluate as evaluating
from saute.runs import holding, report
from saute.runs.checkpoint import newest, numbered
from saute.runs.evaluate import Outcome
from saute.runs.folder import TrainingError, opened, read_metrics
from saute.runs.outcomes import keep_outcomes
from saute.runs.policy import load_policies
from saute.runs.trained import nets_of, save_policies
from saute.serve.description import described

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent
FORMER = HERE / "former"
PENDULUM = "pretrained:pendulum-saute-trpo"
OUTCOME = Outcome(np.ones(3), np.ones(3), np.ones(3, int), np.ones(3), np.zeros(3, bool))


def test_a_few_attacks_of_every_kind_are_survived() -> None:
    done = subprocess.run([sys.executable, "-m", "chaos", "--short"], cwd=HERE, capture_output=True, text=True, check=False)
    rows = [line.split("|")[1:4] for line in done.stdout.splitlines() if line.startswith("|")][2:]
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(rows) >= 16 and all(int(tried.replace(",", "")) > 0 and tried == survived for _, tried, survived in rows)


def test_numbers_and_names_are_on_the_disk_before_what_counts_on_them(tmp_path, monkeypatch) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        done.append(f"sync {pathlib.Path(os.readlink(f'/proc/self/fd/{handle}')).name}")
        fsync(handle)

    def renamed(source: Any, target: Any) -> None:
        done.append(f"rename {pathlib.Path(target).name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    light(tmp_path / "run", 1)
    at = done.index("rename 000001.safetensors")
    assert "sync metrics.jsonl" in done[:at] and done[at - 1].startswith("sync .") and done[at + 1] == "sync checkpoints"


def test_an_epoch_cannot_get_lost_between_others(tmp_path: pathlib.Path) -> None:
    """Python sees the end of a line in a form feed too; such a line was taken for one that a kill had left half written."""
    light(tmp_path / "run", 3)
    file = tmp_path / "run/metrics.jsonl"
    file.write_bytes(file.read_bytes().replace(b"\n", b"\f", 1))
    with pytest.raises(UserError, match=r"line 1 of .*metrics\.jsonl cannot be read .* or let saute resume .* restore it"):
        read_metrics(tmp_path / "run")


@pytest.mark.parametrize("name", [".lock", "checkpoints", "episodes"])
def test_nothing_is_written_through_a_link(tmp_path: pathlib.Path, name: str) -> None:
    light(tmp_path / "mine", 1)
    keep_outcomes(tmp_path / "mine", [OUTCOME])
    (tmp_path / "mine/.lock").write_text("kept")
    before = content(tmp_path / "mine")
    run = tmp_path / "strange"
    light(run, 1)
    shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(tmp_path / "mine" / name)
    with pytest.raises((TrainingError, OSError), match="is a symbolic link, and those are not written through"):
        light(run) if name != "episodes" else keep_outcomes(run, [OUTCOME])
    assert content(tmp_path / "mine") == before and (tmp_path / "mine/.lock").read_text() == "kept"


def test_a_lock_that_has_another_name_elsewhere_is_not_emptied(tmp_path: pathlib.Path) -> None:
    light(tmp_path / "run", 1)
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "run/.lock").unlink(missing_ok=True)
    (tmp_path / "run/.lock").hardlink_to(tmp_path / "precious")
    with pytest.raises(TrainingError, match="is a hard link, and those are not written through"):
        light(tmp_path / "run")
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_mark_of_a_lost_process_that_had_our_number_holds_nobody_up(tmp_path: pathlib.Path, monkeypatch) -> None:
    """A container that is lost and begins again at once has the same name and number as before."""
    light(tmp_path / "run", 1)
    mark = holding.Holder(socket.gethostname(), os.getpid(), "lost")
    (tmp_path / "run" / holding.MARK).write_text(json.dumps(mark._asdict()))
    light(tmp_path / "run")
    assert newest(tmp_path / "run/checkpoints")[1]["epoch"] == EPOCHS  # type: ignore[index]

    def without_locks(lock: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(filelock.FileLock, "acquire", without_locks)
    with holding.held(tmp_path / "run"), pytest.raises(filelock.Timeout):
        holding.held(tmp_path / "run").__enter__()
    with holding.held(tmp_path / "run"):
        pass


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl"])
def test_lists_beyond_counting_take_no_memory(tmp_path: pathlib.Path, name: str) -> None:
    light(tmp_path / "run", 1)
    (tmp_path / "run" / name).write_text('{"a": [' + "[]," * 3_000_000 + "[]]}\n")
    with pytest.raises(UserError, match="characters, more than 8388608"):
        read_metrics(tmp_path / "run")


def test_only_regular_files_of_a_bounded_size_are_read(tmp_path: pathlib.Path) -> None:
    """Before anything is read of them, and with the reason; what a pipe or a device gives might be taken for damage."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "device", "folder"):
        with pytest.raises(ValueError, match="is not a regular file, but a folder, pipe or device"):
            read_sealed(tmp_path / name)
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(2**40)
    with pytest.raises(ValueError, match="has 1099511627776 bytes, more than 268435456"):
        read_sealed(tmp_path / "huge")


ODD: list[dict[str, Any]] = [
    dict(hidden=[1] * 1001),
    dict(observations=10**7 + 1),
    dict(reference=[1e300]),
    dict(reference=[1e-300]),
    dict(squashed=True, low=[-3.4e38], high=[3.4e38]),
    dict(low=None, high=None, discrete=10, start=2**31 - 9),
]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: next(iter(odd)))
def test_numbers_that_no_policy_can_compute_with_are_refused(odd: dict[str, Any]) -> None:
    """They overflow in single precision, or in C's int; a thousand layers are more than any policy has."""
    meta = saute.runs.checkpoint.load(saute.runs.policy.file_of(PENDULUM))[1]
    assert described(meta)
    with pytest.raises(ValueError, match=r"expected at most 1000|expected 1 to|reference budgets|cannot span|beyond 2³¹"):
        described({**meta, **odd})


ODD_NAME = "a\udcff\x1b[2J\x9b$\\frac{$\n0 of 9999 episodes violated"
"""Bytes that are no text, codes for terminals, a formula that cannot be set, and a line of its own."""


def test_names_of_folders_can_be_drawn_and_are_obeyed_by_no_terminal(tmp_path, capsys) -> None:
    run = tmp_path / ODD_NAME
    light(run, 2)
    for name, words in (("plot.png", ["plot", "curves"]), ("costs.png", ["plot", "costs"])):
        code = main([*words, str(run), "--out", str(tmp_path / name)])
        assert code == 2 * (words[1] == "costs")  # it has no policies
    (run / "config.json").unlink()
    shutil.copyfile(FORMER / "policy/policy.safetensors", run / "policy.safetensors")
    shutil.copyfile(FORMER / "policy/config.json", run / "config.json")
    load_policies(run)
    told = capsys.readouterr()
    assert "is of a former version" in told.err and "\\udcff\\u001b[2J\\u009b" in told.err
    assert not {"\x1b", "\x9b"} & set(told.out + told.err) and "\n0 of 9999" not in told.err.split("note:")[1]


def test_a_certificate_of_an_oddly_named_run_is_written(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("saute.cli.certify.trials", lambda runs, *_: [certifying.Trial(runs[0], ODD_NAME, CONFIG, [OUTCOME])])
    assert main(["certify", PENDULUM, "--episodes", "3", "--json", "--out", str(tmp_path)]) == 0
    assert read_sealed(tmp_path / "certificate.json")["run"] == ODD_NAME
    printed = json.loads(capsys.readouterr().out)
    assert printed["certificates"][0]["run"] == ODD_NAME
    assert "\x1b" not in (tmp_path / "certificate.md").read_text()


def test_a_run_without_a_single_budget_is_refused(tmp_path: pathlib.Path, capsys) -> None:
    light(tmp_path / "run", 1)
    write_sealed(tmp_path / "run/config.json", {**CONFIG.as_json(), "budget": []})
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "budget is empty" in capsys.readouterr().err


WORKER = """
import multiprocessing, sys
from saute.cli import main

def begin(words):
    process = multiprocessing.get_context("spawn").Process(target=print)
    process.start()
    process.join()

if __name__ == "__main__":
    main._told = begin
    sys.exit(main.main())
"""


def test_processes_that_are_begun_do_not_run_what_lies_in_the_current_folder(tmp_path: pathlib.Path) -> None:
    for name in ("multiprocessing", "pickle", "random", "tempfile"):
        (tmp_path / f"{name}.py").write_text("import pathlib\npathlib.Path('ran').touch()\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/command").write_text(WORKER)
    done = subprocess.run([sys.executable, "bin/command"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout == "\n", done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_module_that_is_named_is_searched_in_the_current_folder_last(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("wave", "only_here"):  # Python's own, and one that is nowhere else
        (tmp_path / f"{name}.py").write_text("here = True\n")
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert hasattr(module_named("only_here"), "here") and not hasattr(module_named("wave"), "here")


def test_other_checkpoints_do_not_make_the_runs_own_look_old(tmp_path: pathlib.Path, capsys) -> None:
    light(tmp_path / "run", 1)
    for name in ("zzz", "1000000", "1000001"):
        (tmp_path / f"run/checkpoints/{name}.safetensors").write_bytes(b"not ours")
    light(tmp_path / "run")
    assert [int(path.stem) for path in numbered(tmp_path / "run/checkpoints")] == [EPOCHS - 1, EPOCHS, 1000000, 1000001]
    assert (tmp_path / "run/checkpoints/zzz.safetensors").read_bytes() == b"not ours"
    assert "1000001.safetensors is truncated" in capsys.readouterr().err, "passing over a damaged one is said aloud"


@pytest.mark.parametrize("anew", [False, True])
def test_a_folder_that_was_begun_anew_is_not_written_to(tmp_path: pathlib.Path, anew: bool) -> None:
    run, moved = tmp_path / "run", tmp_path / "moved"

    def replaced(epoch: int) -> None:
        if epoch == 2:
            shutil.move(run, moved)
            if anew:
                light(run, 1)

    with pytest.raises(TrainingError, match="was removed or begun anew while this process trained in it; nothing is written"):
        light(run, kept=replaced)
    assert run.exists() is anew and (not anew or len(read_metrics(run)) == 1)


def test_tensorboard_on_a_full_disk_ends_with_a_word_and_training_goes_on(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("tensorboardX.record_writer.open_file", lambda path: io.BufferedWriter(io.FileIO("/dev/full", "wb")))
    with report.logger(("tensorboard",), tmp_path, {}) as log:
        for epoch in range(50):  # more than the queue of its own writer holds
            log(epoch, [{"cost": 1.0}])
    said = capsys.readouterr().err
    assert said.count("warning: no more numbers for TensorBoard (No space left on device); training goes on") == 1


class Failing(Scripted):
    """Raises in the second step, or in the second reset."""

    def __init__(self, where: str):
        Scripted.__init__(self, length=9)
        self.where = where

    def step(self, action: Any) -> Any:
        if self.where == "step" and self.time == 1:
            raise RuntimeError("the motor is hot")
        return Scripted.step(self, action)

    def reset(self, **asked: Any) -> Any:
        if self.where == "reset" and self.episode == 0:
            self.episode += 1
            raise RuntimeError("the door is open")
        return Scripted.reset(self, **asked)


@pytest.mark.parametrize("where", ["step", "reset"])
def test_after_a_failure_of_the_environment_a_reset_is_demanded(where: str) -> None:
    action = np.zeros(1)
    env = saute.SauteWrapper(Failing(where), 5.0)
    envs = saute.SauteVectorWrapper(
        SyncVectorEnv([partial(Scripted, length=9), partial(Failing, where)], autoreset_mode=AutoresetMode.DISABLED), 5.0
    )
    for one, act in ((env, action), (envs, np.zeros((2, 1)))):
        one.reset()
        one.step(act)
        with pytest.raises(RuntimeError) as failed:
            one.step(act) if where == "step" else one.reset()
        with pytest.raises(gym.error.ResetNeeded, match="failed"):
            one.step(act)
    assert failed.value.__notes__ == ["it was environment 1 of the vector that failed"]
    env.reset()
    assert env.step(action)[4]["remaining"] == 4.0


def test_a_refused_cost_demands_a_reset() -> None:
    env = sauted(5.0, env=dict(costs=(1.0, np.nan, 1.0)))
    env.reset()
    env.step(np.zeros(1))
    with pytest.raises(ValueError, match="must be finite"):
        env.step(np.zeros(1))
    with pytest.raises(gym.error.ResetNeeded, match="its cost is not known"):
        env.step(np.zeros(1))


def test_a_policy_brakes_where_its_inputs_are_not_finite() -> None:
    policy = saute.load_policy(PENDULUM, on_nan="brake", brake=[0.25])
    obs = np.zeros((4, 3))
    obs[1, 2], obs[2, 0] = np.nan, np.inf
    actions, plain = policy(obs, [30.0, 30.0, 30.0, np.nan]), saute.load_policy(PENDULUM)
    np.testing.assert_array_equal(actions[1:], 0.25)
    np.testing.assert_array_equal(actions[0], plain(obs[0], 30.0))
    assert policy(obs[1], 30.0).tolist() == [0.25] and policy(obs[0], np.nan).dtype == plain(obs[0], 30.0).dtype
    with pytest.raises(ValueError, match=r"inputs \[2\] of .* not finite; stop, or load it with on_nan='brake'"):
        plain(obs[1], 30.0)
    for bad in ([3.0], [0.0, 0.0], [np.nan]):
        with pytest.raises(ValueError, match=r"is not an action: expected shape \(1,\), from \[-1\.\] to \[1\.\]"):
            saute.load_policy(PENDULUM, on_nan="brake", brake=bad)
    with pytest.raises(ValueError, match="pass both on_nan='brake' and the action to give, or neither"):
        saute.load_policy(PENDULUM, on_nan="brake")


def test_a_certificate_says_what_it_is_about_and_cannot_be_edited(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("saute.cli.certify.trials", lambda runs, *_: [certifying.Trial(runs[0], "a|<b>", CONFIG, [OUTCOME])])
    assert main(["certify", PENDULUM, "--episodes", "3", "--out", str(tmp_path)]) == 0
    stored = read_sealed(tmp_path / "certificate.json")
    assert stored["provenance"].keys() == {"config", "policy", "epochs", "date", "saute", "machine", "episodes"}
    assert r"a\|&lt;b&gt;" in (tmp_path / "certificate.md").read_text()
    edited = json.loads((tmp_path / "certificate.json").read_text()) | {"statement": "0 of 10000 episodes violated"}
    (tmp_path / "certificate.json").write_text(json.dumps(edited))
    with pytest.raises(ValueError, match="was changed or damaged after it was written"):
        read_sealed(tmp_path / "certificate.json")


def test_a_policy_that_changes_while_it_is_tested_is_not_certified(tmp_path, monkeypatch, capsys) -> None:
    run = shutil.copytree(FORMER / "policy", tmp_path / "run")

    def trained_on(*_: Any) -> list[Any]:
        (_, policies), (_, meta) = nets_of(run), saute.runs.checkpoint.load(run / "policy.safetensors")
        save_policies(run / "policy.safetensors", [policies[0]] * 5, {**meta, "epochs": 86})
        return [certifying.Trial(run, "run", CONFIG, [OUTCOME])]

    monkeypatch.setattr("saute.cli.certify.trials", trained_on)
    assert main(["certify", str(run), "--episodes", "3"]) == 2
    assert "changed while it was tested" in capsys.readouterr().err and not (run / "certificate.json").exists()


def test_what_a_kill_left_half_written_is_swept(tmp_path: pathlib.Path) -> None:
    run = tmp_path / "run"
    light(run, 1)
    keep_outcomes(run, [OUTCOME])
    for place in (run, run / "checkpoints", run / "episodes"):
        with pytest.raises(OSError, match="full"), replacing(place / "a.json") as partial:
            left = pathlib.Path(shutil.copy(partial, place / f".{'0' * 16}{PART}.json"))
            raise OSError("full")
        assert left.exists() and not partial.exists()
    light(run)
    keep_outcomes(run, [OUTCOME])
    assert not [file for file in run.rglob(".*") if PART in file.name]


def test_files_have_the_permissions_that_the_user_gives(tmp_path: pathlib.Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_over_long_names_are_refused_clearly(tmp_path: pathlib.Path, capsys) -> None:
    long = tmp_path / ("x" * 300)
    with pytest.raises(TrainingError, match=r"cannot write to .* \(File name too long\); choose another folder"):
        light(long)
    with pytest.raises(ValueError, match=r"cannot be read \(File name too long\)"):
        saute.load_policy(long)
    assert main(["evaluate", str(long)]) == 2
    assert "File name too long" in capsys.readouterr().err
    name = tmp_path / ("y" * 250 + ".json")
    write_atomically(name, b"as long as names can be")
    assert name.exists()


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["pretrained"]])
def test_outputs_that_are_full_or_know_only_ascii(words: list[str]) -> None:
    command = [sys.executable, "-m", "saute", *words]
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=ascii_only, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout and not done.stderr
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2 and done.stderr == "error: cannot read or write the output (No space left on device)\n"


TEXTS = ["1", b"1", np.array("1"), np.array(["1"]), ["1"], np.str_("1"), np.array(["1"], object)]


@pytest.mark.parametrize("text", TEXTS, ids=repr)
def test_texts_are_not_costs_in_any_form(text: Any) -> None:
    one = sauted(5.0, env=dict(costs=(text,)))
    several = sauted([5.0, 5.0], env=dict(costs=([1.0, text],), key="costs"))
    envs = saute.SauteVectorWrapper(SyncVectorEnv([partial(Scripted, costs=(text,))] * 2), 5.0)
    for env, action in ((one, np.zeros(1)), (several, np.zeros(1)), (envs, np.zeros((2, 1)))):
        env.reset()
        with pytest.raises(ValueError, match="cost"):
            env.step(action)


@pytest.mark.parametrize("first", [0, False, np.float16(0.0)], ids=repr)
@pytest.mark.parametrize("given", ["key", "function", "view"])
def test_costs_of_a_vector_that_may_have_been_cut_are_refused(first: Any, given: str) -> None:
    source = {"key": "cost", "function": lambda *step: step[3]["cost"], "view": lambda *step: step[3]["cost"].reshape(2)}
    envs = SyncVectorEnv([partial(Scripted, costs=(first,) * 3), partial(Scripted, costs=(1e-9,) * 3)])
    sauted_envs = saute.SauteVectorWrapper(envs, 5.0, cost=source[given])
    sauted_envs.reset()
    with pytest.raises(ValueError, match=r"would cut (0\.9|1e-9) to 0\. Return float\(cost\)"):
        sauted_envs.step(np.zeros((2, 1)))


def test_masks_that_a_function_computes_itself_are_costs() -> None:
    envs = saute.SauteVectorWrapper(SyncVectorEnv([partial(Scripted)] * 2), 5.0, cost=lambda obs, *_: obs[:, 0] > -1e9)
    envs.reset()
    assert envs.step(np.zeros((2, 1)))[4]["remaining"].tolist() == [4.0, 4.0]


def test_the_page_of_numbers_sums_up_the_table_of_attacks() -> None:
    sums: dict[str, list[int]] = {}
    for kind, *numbers in _rows(ROOT / "results/chaos.md"):
        sums.setdefault(kind.partition(":")[0], []).append(int(numbers[0].replace(",", "")))
        assert numbers[0] == numbers[1]
    shown = {
        kind: int(tried.replace(",", ""))
        for kind, tried, survived in _rows(ROOT / "docs/numbers.md", "| attack | tried | survived |")
    }
    assert shown == {kind: sum(numbers) for kind, numbers in sums.items()}
    kills = sum(number for kind, number in shown.items() if kind.startswith("kills"))
    told = [kills, *(shown[kind] for kind in ("power cuts", "mutated stored files", "wrapper steps against the oracle"))]
    (sentence,) = re.findall(
        r"^What a run keeps survives:(.*?)\n\n", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert all(f"{number:,} " in sentence for number in told)


def _rows(file: pathlib.Path, head: str = "") -> list[list[str]]:
    """The rows of a table in Markdown, below its head."""
    lines = file.read_text().split(head, 1)[-1].splitlines() if head else file.read_text().splitlines()[1:]
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[1:])
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if "---" not in row]


def test_evaluation_takes_no_more_memory_for_longer_episodes() -> None:
    """The totals of every step of every episode were kept, to pick the last ones."""

    def bytes_for(horizon: int) -> int:
        env: Any = Slope(horizon=horizon)
        net = saute.learn.nets.policy_for(env.observation_space, env.action_space, (8,))
        play = partial(evaluating._first_episodes, net, env=env, episodes=500, ledger=options(30.0))
        parameters, key = net.init(jax.random.key(0)), jax.random.key(1)
        lowered = jax.jit(lambda parameters, key: play(parameters, key=key)).lower(parameters, key)
        return lowered.compile().memory_analysis().temp_size_in_bytes

    assert bytes_for(1000) < 1.2 * bytes_for(100)


def test_a_policy_of_the_former_layout_still_loads_with_a_note(capsys) -> None:
    policies = load_policies(FORMER / "policy")
    assert list(policies) == [0, 1, 2, 3, 4] and policies[0](np.zeros(3), remaining=30.0).shape == (1,)
    assert "is of a former version and does not say which configuration it belongs to" in capsys.readouterr().err


def test_a_run_of_the_former_layout_goes_on_with_a_note(tmp_path: pathlib.Path, capsys) -> None:
    run = shutil.copytree(FORMER / "run", tmp_path / "run")
    with opened(run, CONFIG, {}, lambda seed: seed) as folder:
        seeds, metrics = folder.recover([{"weight": np.zeros(3, np.float32)}], 5)
        assert len(metrics) == 2 and metrics[0][0] == {"cost": 1.5, "episodes": 0.0} and np.isnan(metrics[1][0]["cost"])
        folder.keep(seeds, [*metrics, [{"cost": 1.0, "episodes": 1.0}]])
    assert "of a former version" in capsys.readouterr().err
    assert newest(run / "checkpoints", config=CONFIG.digest)[1]["epoch"] == 3 and len(read_metrics(run)) == 3


def test_a_run_of_the_former_layout_that_lost_numbers_says_what_to_do(tmp_path: pathlib.Path) -> None:
    run = shutil.copytree(FORMER / "run", tmp_path / "run")
    (run / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text().splitlines(keepends=True)[0])
    with (
        pytest.raises(ValueError, match="has only 1 of the 2 epochs of the newest checkpoint"),
        opened(run, CONFIG, {}, lambda seed: seed) as folder,
    ):
        folder.recover([{"weight": np.zeros(3, np.float32)}], 5)
