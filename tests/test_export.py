"""Policies as files for other programs: ONNX, C and NumPy act as the policy that they were made of."""

from __future__ import annotations

import functools
import hashlib
import json
import pathlib
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from test_shield import write_shield

import saute
from saute.cli.main import main
from saute.serve.budgeted import BudgetedPolicy
from saute.serve.description import described, layout
from saute.serve.nets import network_of
from saute.serve.policy import Policy
from saute.serve.shield import Shield
from saute.serve.to_c import c_source
from saute.serve.to_numpy import numpy_source
from saute.serve.to_onnx import onnx_bytes

ROWS = 100_000
VECTOR = {"low": [-1.0, -0.5], "high": [1.0, 2.0], "discrete": None, "squashed": False}
DISCRETE = {"low": None, "high": None, "discrete": 4, "squashed": False}
KINDS: dict[str, dict[str, Any]] = {
    "gaussian": VECTOR | {"reference": [30.0]},
    "squashed": VECTOR | {"squashed": True, "reference": [30.0, 5.0]},
    "discrete": DISCRETE | {"relu": True, "start": 3, "reference": [2.0]},
    "several": DISCRETE | {"discrete": None, "choices": [2, 4], "start": [0, -3], "reference": [2.0]},
    "blind": VECTOR | {"reference": None},
    "linear": VECTOR | {"hidden": [], "reference": [1.0]},
    "picture": DISCRETE | {"observations": 8 * 9 * 2 + 3, "image": [8, 9, 2], "reference": [2.0]},
}
FLAT = [kind for kind in KINDS if kind != "picture"]
FACTS = {"task": 'a */ "b" ??/ $x \n é', "budget": "30"}


@functools.cache
def policy_of(kind: str) -> Policy:
    """A policy with random parameters."""
    return random_net({"observations": 5, "hidden": [16, 8]} | KINDS[kind], 0)


def random_net(meta: dict[str, Any], seed: int) -> Policy:
    about, rng = described(meta), np.random.default_rng(seed)
    arrays = {name: rng.normal(0.0, 0.4, it.shape).astype(np.float32) for name, it in layout(about).items()}
    return Policy(about, network_of(about, arrays))


@functools.cache
def shield_of(kind: str) -> Shield:
    """A shield with random parameters; its backup has rectifiers, unlike the policy, and its needs have a net of their own."""
    about = policy_of(kind).about
    reference = about.reference or (3.0,)
    relu = {"squashed": True} if about.low is not None else {"relu": True}
    backup = random_net({**KINDS[kind], "observations": about.bare, "hidden": [7], "reference": None, **relu}, 1)
    inputs, budgets = about.bare + (sum(about.choices) or about.actions), len(reference)
    ends = {"low": [0.0] * budgets, "high": [np.inf] * budgets, "discrete": None, "squashed": False, "reference": None}
    needs = random_net({"observations": inputs, "hidden": [9, 6], **ends}, 2)
    return Shield(backup, needs, np.array(reference, np.float32), 0.1, 0.5)


def inputs_of(policy: Policy, rows: int) -> tuple[np.ndarray, np.ndarray | None]:
    about, rng = policy.about, np.random.default_rng(1)
    obs = rng.normal(0.0, 2.0, (rows, about.bare)) if about.image is None else rng.integers(0, 256, (rows, about.bare))
    left = None if about.reference is None else rng.uniform(-1.0, 2.0, (rows, about.constraints)) * about.reference
    return obs.astype(np.float32), left


def assert_parity(policy: Policy, act: Callable[[np.ndarray, np.ndarray | None], np.ndarray], rows: int = ROWS) -> None:
    """The same actions to 1e-5; of discrete ones, wherever the two best are further apart than rounding can bring them."""
    obs, left = inputs_of(policy, rows)
    found, expected = act(obs, left), policy(obs, left)
    assert found.shape == expected.shape and len(np.unique(expected, axis=0)) > 1
    if policy.about.low is not None:
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
        return
    clear = decided(policy, policy._augmented(obs, left))
    assert clear.mean() > 0.99
    np.testing.assert_array_equal(found[clear], expected[clear])


def assert_shielded(kind: str, act: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]) -> None:
    """The same actions and interventions as in Python, but where rounding decides: at equal outputs, or what just suffices."""
    policy, shield = policy_of(kind), shield_of(kind)
    obs, left = inputs_of(policy, ROWS)
    if left is None:
        left = np.random.default_rng(2).uniform(-1.0, 2.0, (ROWS, 1)) * shield.reference
    proposed = policy(obs) if policy.about.reference is None else policy(obs, left)
    expected, stops = shield(obs, proposed, left)
    clear = (np.abs(left - shield.need(obs, proposed)) > 1e-5 * shield.reference).all(1)
    if policy.about.low is None:
        clear &= decided(policy, policy._augmented(obs, left)) & decided(shield.backup, obs)
    found, stepped_in = act(obs, left)
    assert clear.mean() > 0.99 and 0.1 < stops.mean() < 0.9 and found.shape == expected.shape
    np.testing.assert_array_equal(stepped_in[clear], stops[clear])
    np.testing.assert_allclose(found[clear], expected[clear], rtol=0, atol=1e-5)
    assert not np.allclose(expected[stops], proposed[stops]), "the backup does something else"


def decided(policy: Policy, seen: np.ndarray) -> np.ndarray:
    """Where the best of discrete actions is better than the next one by more than rounding."""
    each = np.split(policy.net.outputs(seen), np.cumsum(policy.about.choices)[:-1], axis=1)
    return np.all([np.diff(np.sort(own, axis=1)[:, -2:])[:, 0] > 1e-5 for own in each], axis=0)


def rows_for(kind: str) -> int:
    return 300 if kind == "picture" else ROWS


@pytest.mark.parametrize("kind", KINDS)
def test_onnx_gives_the_same_actions(kind: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    policy = policy_of(kind)
    session = runtime.InferenceSession(onnx_bytes(policy.net, FACTS), providers=["CPUExecutionProvider"])
    assert session.get_modelmeta().custom_metadata_map == FACTS

    def act(obs: np.ndarray, left: np.ndarray | None) -> np.ndarray:
        given = {"observation": obs} if left is None else {"observation": obs, "remaining": left.astype(np.float32)}
        return session.run(["action"], given)[0]

    assert_parity(policy, act, rows_for(kind))


@pytest.mark.parametrize("kind", FLAT)
def test_onnx_steps_in_where_the_shield_does(kind: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    made = onnx_bytes(policy_of(kind).net, FACTS, shield_of(kind))
    session = runtime.InferenceSession(made, providers=["CPUExecutionProvider"])
    asked = ["action", "stepped_in"]
    assert_shielded(kind, lambda obs, left: session.run(asked, {"observation": obs, "remaining": left.astype(np.float32)}))


@pytest.mark.parametrize("kind", FLAT)
def test_the_numpy_file_steps_in_where_the_shield_does(kind: str) -> None:
    made = dict[str, Any]()
    exec(numpy_source(policy_of(kind).net, FACTS, 0.5, shield_of(kind)), made)
    assert_shielded(kind, made["shielded"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_numpy_file_gives_the_same_actions(kind: str) -> None:
    policy, made = policy_of(kind), dict[str, Any]()
    exec(numpy_source(policy.net, FACTS, 0.5), made)
    assert made["ABOUT"] == FACTS
    assert_parity(policy, lambda obs, left: made["act"](obs, left), rows_for(kind))
    obs, left = inputs_of(policy, 1)
    np.testing.assert_allclose(made["act"](obs[0], None if left is None else left[0]), policy(obs, left)[0], atol=1e-5)
    with pytest.raises(ValueError, match="is not finite"):
        made["act"](np.nan * obs, left)


def test_the_numpy_file_keeps_books() -> None:
    made = dict[str, Any]()
    exec(numpy_source(policy_of("squashed").net, FACTS, 0.5), made)
    books = made["Books"]([30.0, 5.0])
    np.testing.assert_allclose(books.act(np.zeros(3)), policy_of("squashed")(np.zeros(3), [30.0, 5.0]), atol=1e-6)
    with pytest.raises(RuntimeError, match="twice without spend"):
        books.act(np.zeros(3))
    assert books.spend([10.0, 6.0]).tolist() == [40.0, -2.0] and books.violated
    for budgets, costs in (([0.0, 1.0], [0.0, 0.0]), ([1.0, 1.0], [np.nan, 0.0])):
        with pytest.raises(ValueError, match="must be"):
            made["Books"](budgets).spend(costs)


def test_the_numpy_file_counts_interventions() -> None:
    policy, shield, made = policy_of("gaussian"), shield_of("gaussian"), dict[str, Any]()
    exec(numpy_source(policy.net, FACTS, 0.5, shield), made)
    keeper, rng, counts = BudgetedPolicy(policy, 0.5, shield=shield), np.random.default_rng(0), set[int]()
    for _ in range(20):
        keeper.begin(30.0)
        books = made["Books"]([30.0])
        for _ in range(10):
            obs, cost = rng.normal(size=4), rng.uniform(0.0, 30.0)
            np.testing.assert_allclose(books.act(obs), keeper.act(obs), atol=1e-6)
            np.testing.assert_allclose(books.spend([cost]), keeper.spend(cost))
        assert books.interventions == keeper.interventions
        counts.add(keeper.interventions)
    assert len(counts) > 3


DRIVER = r"""
#include "policy.c"
#include <stdio.h>

int main(void)
{
    struct saute_books books = {BLANK};
    double in[SAUTE_OBSERVATIONS + SAUTE_CONSTRAINTS], out[SAUTE_ACTIONS + SAUTE_CONSTRAINTS + 3];
    float observation[SAUTE_OBSERVATIONS];
    saute_number action[SAUTE_ACTIONS] = {0};
    const double *last = in + SAUTE_OBSERVATIONS;
    long interventions = 0;
    int what, i;
    if (saute_about()[0] != '{')
        return 1;
    while ((what = getchar()) != EOF && fread(in, sizeof in, 1, stdin) == 1) {
        for (i = 0; i < SAUTE_OBSERVATIONS; i++)
            observation[i] = (float)in[i];
        out[0] = what == 'p' ? PROPOSE
               : what == 'b' ? saute_begin(&books, last)
               : what == 'a' ? saute_act(&books, observation, action)
                             : saute_spend(&books, last);
        out[1] = saute_violated(&books);
        for (i = 0; i < SAUTE_CONSTRAINTS; i++)
            out[2 + i] = books.remaining[i];
        for (i = 0; i < SAUTE_ACTIONS; i++)
            out[2 + SAUTE_CONSTRAINTS + i] = action[i];
        out[2 + SAUTE_CONSTRAINTS + SAUTE_ACTIONS] = COUNT;
        fwrite(out, sizeof out, 1, stdout);
    }
    return 0;
}
"""


BARE = ["-DBLANK={0},0,0", "-DPROPOSE=saute_policy(observation,last,action)", "-DCOUNT=interventions"]
GUARDED = [
    "-DBLANK={0},0,0,0",
    "-DPROPOSE=saute_shielded(observation,last,action,&interventions)",
    "-DCOUNT=(what=='p'?interventions:books.interventions)",
]


@functools.cache
def compiled(kind: str, place: pathlib.Path, shielded: bool) -> pathlib.Path:
    """The policy in C behind a program that reads what to do from its input, and writes what came of it."""
    folder = place / f"{kind}-{shielded}"
    folder.mkdir()
    (folder / "policy.c").write_text(c_source(policy_of(kind).net, FACTS, 0.5, shield_of(kind) if shielded else None))
    (folder / "driver.c").write_text(DRIVER)
    words = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "driver.c", "-o", "driver", "-lm"]
    done = subprocess.run([*words, *(GUARDED if shielded else BARE)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "driver"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    return tmp_path_factory.mktemp("c")


def told(words: list[str], policy: Policy, asked: str, numbers: np.ndarray) -> np.ndarray:
    """What the program says to each of these: result, violated, remaining budgets, action and interventions."""
    sent = np.zeros(len(asked), [("what", "S1"), ("numbers", float, numbers.shape[1:])])
    sent["what"], sent["numbers"] = list(asked), numbers
    done = subprocess.run(words, input=sent.tobytes(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return np.frombuffer(done.stdout).reshape(len(asked), 3 + numbers.shape[1] - policy.about.bare + policy.about.actions)


def actions_of(policy: Policy, said: np.ndarray) -> np.ndarray:
    about = policy.about
    each = said[:, -1 - about.actions : -1]
    return each if about.low is not None or about.several else each[:, 0]


@pytest.mark.parametrize("kind", FLAT)
def test_c_gives_the_same_actions(kind: str, place: pathlib.Path) -> None:
    policy = policy_of(kind)

    def act(obs: np.ndarray, left: np.ndarray | None) -> np.ndarray:
        given = np.concatenate([obs, np.ones((len(obs), 1)) if left is None else left], axis=1)
        said = told([str(compiled(kind, place, False))], policy, "p" * len(given), given)
        assert (said[:, 0] == 0).all()
        return actions_of(policy, said)

    assert_parity(policy, act)


@pytest.mark.parametrize("kind", FLAT)
def test_c_steps_in_where_the_shield_does(kind: str, place: pathlib.Path) -> None:
    policy = policy_of(kind)

    def act(obs: np.ndarray, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        said = told([str(compiled(kind, place, True))], policy, "p" * len(obs), np.concatenate([obs, left], axis=1))
        assert (said[:, 0] == 0).all()
        return actions_of(policy, said), np.diff(said[:, -1], prepend=0.0) == 1

    assert_shielded(kind, act)


def random_steps(policy: Policy, count: int) -> tuple[str, np.ndarray]:
    """Mostly act and spend in turn, and a little of everything that can go wrong."""
    rng = np.random.default_rng(2)
    numbers = np.hstack([rng.normal(size=(count, policy.about.bare)), rng.uniform(0.0, 2.0, (count, policy.about.constraints))])
    odd = (np.nan, np.inf, -np.inf, -1.0, 0.0, 1e9)
    for i in np.flatnonzero(rng.random(count) < 0.1):
        numbers[i, rng.integers(numbers.shape[1])] = rng.choice(odd)
    return "".join(str(rng.choice(["b", "a", "s"])) if rng.random() < 0.2 else "as"[i % 2] for i in range(count)), numbers


@pytest.mark.parametrize(("kind", "shielded"), [("gaussian", False), ("squashed", False), ("squashed", True)])
def test_c_keeps_the_same_books(kind: str, shielded: bool, place: pathlib.Path) -> None:
    policy = policy_of(kind)
    keeper = BudgetedPolicy(policy, 0.5, shield=shield_of(kind) if shielded else None)
    steps = random_steps(policy, 3000)
    said = told([str(compiled(kind, place, shielded))], policy, *steps)
    results, interventions = set(), set()
    for what, numbers, (result, violated, *rest) in zip(*steps, said, strict=True):
        obs, last = numbers[: policy.about.bare].astype(np.float32), numbers[policy.about.bare :]
        action = None
        try:
            action = keeper.begin(last) if what == "b" else keeper.act(obs) if what == "a" else (keeper.spend(last), None)[1]
        except (ValueError, gym.error.ResetNeeded) as problem:
            known = {"before begin": 1, "inputs": 2, "twice": 5, "budget=": 3, "cost=": 4}
            assert result == next(code for word, code in known.items() if word in str(problem)), problem
        else:
            assert result == 0
        if keeper.remaining is not None:
            np.testing.assert_allclose(rest[: len(last)], keeper.remaining, rtol=1e-12)
            assert violated == keeper.violated
        if action is not None:
            np.testing.assert_allclose(rest[len(last) : -1], action, atol=1e-5)
        assert rest[-1] == keeper.interventions
        results.add(result)
        interventions.add(keeper.interventions)
    assert results == set(range(6)), "everything that can go wrong did"
    assert (len(interventions) > 3) is shielded


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
@pytest.mark.parametrize("shielded", [False, True])
def test_valgrind_finds_nothing(shielded: bool, place: pathlib.Path) -> None:
    policy = policy_of("squashed")
    program = compiled("squashed", place, shielded)
    words = ["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full", str(program)]
    told(words, policy, *random_steps(policy, 100))


# The command


@pytest.mark.parametrize(("form", "name"), [("onnx", "policy.onnx"), ("c", "policy.c"), ("numpy", "policy.py")])
def test_the_command_writes_what_is_known_of_the_policy(form: str, name: str, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", "pretrained:pendulum-saute-trpo", "--seed", "3", "--format", form]) == 0
    assert f"wrote {name}, " in capsys.readouterr().out
    text = (tmp_path / name).read_bytes().decode(errors="ignore")
    assert all(word in text for word in ("pendulum", "sha256", "trpo", "saute 0."))
    assert main(["export", "pretrained:pendulum-saute-trpo", "--format", form]) == 2
    assert f"{name} exists; remove it, or choose another place with --out" in capsys.readouterr().err


def test_a_certificate_goes_with_the_policy_that_it_is_of(tmp_path, monkeypatch, capsys) -> None:
    run = shutil.copytree(saute.runs.pretrained.located("pretrained:pendulum-saute-trpo"), tmp_path / "run")
    digest = hashlib.sha256((run / "policy.safetensors").read_bytes()).hexdigest()
    for policy, kept in ((digest, True), ("0" * 64, False)):
        saute.core.files.write_sealed(run / "certificate.json", {"statement": "0 of 9", "provenance": {"policy": policy}})
        out = tmp_path / f"{kept}.py"
        assert main(["export", str(run), "--format", "numpy", "--out", str(out)]) == 0
        made = dict[str, Any]()
        exec(out.read_text(), made)
        assert (made["ABOUT"].get("certificate") == "0 of 9") is kept
        assert ("is of other policies, and is left out" in capsys.readouterr().err) is not kept
    np.testing.assert_allclose(made["act"]([1.0, 0.0, 0.0], 12.5), saute.load_policy(run)([1.0, 0.0, 0.0], 12.5), atol=1e-6)


@pytest.mark.parametrize(("form", "name"), [("onnx", "policy.onnx"), ("c", "policy.c"), ("numpy", "policy.py")])
def test_the_command_takes_the_shield_along(form: str, name: str, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    kept = tmp_path / "runs/pretrained/pendulum-saute-trpo"
    write_shield(kept)
    words = ["export", "pretrained:pendulum-saute-trpo", "--format", form]
    digest = hashlib.sha256((kept / "shield.safetensors").read_bytes()).hexdigest()
    assert main([*words, "--shield"]) == 0 and ", with its shield" in capsys.readouterr().out
    assert digest in (tmp_path / name).read_bytes().decode(errors="ignore")
    (tmp_path / name).unlink()
    assert main(words) == 0 and "add --shield to have it step in there too" in capsys.readouterr().err


def test_only_a_certificate_under_this_shield_goes_with_it(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept = tmp_path / "runs/pretrained/pendulum-saute-trpo"
    write_shield(kept)
    policy = hashlib.sha256(saute.runs.policy.file_of("pretrained:pendulum-saute-trpo").read_bytes()).hexdigest()
    shield = hashlib.sha256((kept / "shield.safetensors").read_bytes()).hexdigest()
    (kept / "shielded").mkdir()
    saute.core.files.write_sealed(kept / "certificate.json", {"statement": "bare", "provenance": {"policy": policy}})
    for digest, statement in ((shield, "guarded"), ("0" * 64, None)):
        content = {"statement": "guarded", "provenance": {"policy": policy, "shield": digest}}
        saute.core.files.write_sealed(kept / "shielded/certificate.json", content)
        words = ["export", "pretrained:pendulum-saute-trpo", "--format", "numpy", "--shield", "--out", f"{digest[:8]}.py"]
        made = dict[str, Any]()
        assert main(words) == 0
        exec((tmp_path / f"{digest[:8]}.py").read_text(), made)
        assert made["ABOUT"].get("certificate") == statement


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (None, "has no shield; make one with saute shield pretrained:pendulum-saute-trpo"),
        ({"policy": "0" * 64}, "was made for other policies (SHA-256 000000000000)"),
        ({"reference": [20.0]}, "the shield is for budgets [20.], the policy for (30.0,)"),
        ({"discount": 0.5}, "discount=1, but the shield was made for 0.5"),
    ],
)
def test_shields_of_others_are_not_exported(other, message: str, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    if other is not None:
        write_shield(tmp_path / "runs/pretrained/pendulum-saute-trpo", **other)
    assert main(["export", "pretrained:pendulum-saute-trpo", "--format", "c", "--shield"]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "policy.c").exists()


REFUSED = {
    "--format pickle": "unknown --format 'pickle'",
    "--seed 9": "has no seed 9",
    "--format c --out policy.py": "has to end in .c for --format c",
    "--out nowhere/policy.onnx": "nowhere, where policy.onnx should go, is not a folder",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_exported_is_refused_before_anything_is_written(words: str, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", "pretrained:pendulum-saute-trpo", *words.split()]) == 2
    assert REFUSED[words] in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_pictures_have_no_form_in_c() -> None:
    with pytest.raises(ValueError, match="sees pictures has no form in C; use --format onnx or --format numpy"):
        c_source(policy_of("picture").net, FACTS, 1.0)


def test_texts_of_strangers_stay_texts() -> None:
    """Names in a configuration could end the comment or the string that they are written into."""
    source = c_source(policy_of("blind").net, {"task": '*/ int x; /* "; evil(); \\'}, 1.0)
    assert "*/ int" not in source and 'evil(); \\"' not in source
    assert json.loads(source.split('return "')[1].split('";')[0].encode().decode("unicode_escape"))["task"].startswith(
        "*/ int x;"
    )
