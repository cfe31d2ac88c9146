"""Certificates: from plain arrays, from run folders, and never more than the episodes say."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from rebind import rebind

import saute
from saute.cli.main import main
from saute.core.files import read_sealed
from saute.evidence.certificate import certify
from saute.runs import evaluate as testing
from saute.runs import outcomes as runs
from saute.runs.evaluate import Outcome
from saute.runs.folder import read_config, read_metrics

COSTS = np.random.default_rng(0).gamma(5.0, 3.0, (3, 400))
RETURNS = np.random.default_rng(1).normal(100.0, 5.0, (3, 400))


def test_the_sentence_is_exactly_what_the_episodes_prove() -> None:
    expected = "0 of 500 episodes violated, so P(violation) ≤ 0.597 % at 95 % confidence"
    certificate = certify(np.full(500, 29.0), 30.0)
    assert certificate.statement == expected and expected in certificate.text()
    some = certify([31.0] * 3 + [1.0] * 497, 30.0, confidence=0.99)
    assert some.statement.startswith("3 of 500 episodes violated, so P(violation) ≤ 1.99 % at 99 % confidence")
    for words in (certificate.text(), some.text(), certificate.json()):
        assert "guarantee" not in words.lower()


def test_spending_exactly_the_budget_is_no_violation() -> None:
    assert certify([30.0, 30.0, np.nextafter(30.0, 31.0)], 30.0).pooled.violations == 1


def test_every_number_by_hand() -> None:
    costs = [np.array([40.0] + [10.0] * 299), np.full(100, 20.0)]
    certificate = certify(costs, 30.0, returns=[np.full(300, 5.0), np.full(100, 7.0)])
    # Bounds are scipy.stats.beta.ppf(0.95, k + 1, n − k); a 99 % quantile takes 299 episodes; a quarter of the resamples of
    # both seeds has the second one twice.
    expected = {
        "seed 0": (300, 1, 0.01571455489, 10.1, 20.0, 40.0, 10.0, 40.0, 0.3366666667, (5.0, 5.0, 5.0)),
        "seed 1": (100, 0, 0.02951304961, 20.0, 20.0, 20.0, 20.0, None, 0.6666666667, (7.0, 7.0, 7.0)),
        "pooled": (400, 1, 0.01180430445, 12.575, 25.0, 40.0, 20.0, 40.0, 0.4191666667, (5.0, 5.0, 7.0)),
    }
    for sample in (*certificate.seeds, certificate.pooled):
        name, *numbers, task_return = vars(sample).values()
        assert [*numbers, task_return] == [*map(pytest.approx, expected[name][:-1]), expected[name][-1]]
    assert (certificate.budget, certificate.confidence) == (30.0, 0.95)


def test_the_interval_of_returns_has_a_seed() -> None:
    first, again, other = (certify(COSTS, 30.0, returns=RETURNS, seed=seed) for seed in (3, 3, 4))
    assert first == again != other


def test_what_the_carried_budget_said_decides_and_the_costs_are_only_described() -> None:
    costs, violated = [[10.0, 20.0, 40.0], [50.0, 50.0, 10.0]], [[True, True, False], [False, False, False]]
    told, plain = certify(costs, 30.0, violated=violated), certify(costs, 30.0)
    assert [sample.violations for sample in (*told.seeds, told.pooled)] == [2, 0, 2]
    assert [sample.violations for sample in (*plain.seeds, plain.pooled)] == [1, 2, 3]
    assert [sample.bound for sample in told.seeds] == pytest.approx([0.98304757, 0.63159685])
    assert told.statement.startswith("2 of 6 episodes violated")
    kept = dict(bound=0.0, violations=0)
    assert [dataclasses.replace(one, **kept) for one in told.seeds] == [dataclasses.replace(one, **kept) for one in plain.seeds]
    assert told == certify(np.array(costs), 30.0, violated=np.array(violated)) and told.budget == 30.0
    ragged = certify([[1.0, 2.0], [3.0]], 30.0, violated=[np.array([False, True]), [True]])
    assert [sample.violations for sample in ragged.seeds] == [1, 1]


def test_every_episode_may_have_its_own_budget() -> None:
    certificate = certify([[10.0, 20.0], [30.0]], [[10.0, 10.0], [60.0]])
    assert [sample.violations for sample in (*certificate.seeds, certificate.pooled)] == [0 + 1, 0, 1]
    # The means of (1, 2), of (½) and of (1, 2, ½).
    assert [sample.budget_use for sample in (*certificate.seeds, certificate.pooled)] == pytest.approx([1.5, 0.5, 3.5 / 3])
    assert certificate.text().startswith("Safety certificate for every episode and its own budget\n\n1 of 3 episodes violated")
    assert certificate.budget is None and json.loads(certificate.json())["budget"] is None
    assert certify([10.0, 20.0], np.array([10.0, 30.0]), violated=[True, True]).pooled.violations == 2


def test_rows_of_every_kind_give_the_same_certificate() -> None:
    assert certify(COSTS, 30.0) == certify(list(COSTS), 30.0) == certify(COSTS.tolist(), 30)
    assert certify(COSTS[0], 30.0).pooled.bound == certify(COSTS, 30.0).seeds[0].bound
    ragged = certify([COSTS[0], COSTS[1][:7]], 30.0, returns=[RETURNS[0], RETURNS[1][:7]])
    assert [sample.episodes for sample in (*ragged.seeds, ragged.pooled)] == [400, 7, 407]


def test_the_text_says_which_bound_is_whose() -> None:
    several, one = certify(COSTS, 30.0).text(), certify(COSTS[0], 30.0).text()
    assert "episodes of 3 seeds as one sample" in several and "the bound of each policy is that of its own seed" in several
    assert all(name in several for name in ("seed 0", "seed 2", "pooled", "CVaR 1 %", "99 % ≤"))
    assert "one sample" not in one and "pooled" not in one and "return" not in one
    assert "return, IQM" in certify(COSTS, 30.0, returns=RETURNS).text()


def test_too_few_episodes_for_a_quantile_give_a_dash_and_null() -> None:
    certificate = certify([1.0] * 100, 30.0)
    assert certificate.pooled.q90 == 1.0 and certificate.pooled.q99 is None
    assert "–" in certificate.text() and "99 % needs 299" in certificate.text()
    assert json.loads(certificate.json())["pooled"]["q99"] is None
    assert "99 % needs" not in certify([1.0] * 299, 30.0).text()


@pytest.mark.parametrize("costs", [[0.0], [1.0] * 5, np.zeros((2, 3)), [1e308, 1e308], COSTS])
def test_json_is_valid_and_complete(costs: Any) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    with np.errstate(all="ignore"):
        certificate = certify(costs, 30.0, returns=costs)
        content = json.loads(certificate.json(run="a"), parse_constant=refuse)
    assert content["run"] == "a" and content["statement"] == certificate.statement and content["budget"] == 30.0
    assert content["pooled"]["bound"] == certificate.pooled.bound and len(content["seeds"]) == len(certificate.seeds)
    assert content["seeds"][0]["task_return"].keys() == {"value", "low", "high"}


@pytest.mark.parametrize(
    ("costs", "options", "message"),
    [
        ([], {}, "costs has 0 episodes; every seed needs at least 1"),
        ([[1.0], []], {}, r"costs has \[1, 0\] episodes"),
        ([1.0, math.nan], {}, "costs: episode 1 of seed 0 is nan; numbers must be finite"),
        ([[1.0], [-2.0]], {}, "costs: episode 0 of seed 1 is -2.0; safety costs are ≥ 0"),
        ([1.0], {"budget": 0.0}, "budget=0.0 must be positive and finite: one number, or one per episode"),
        ([1.0], {"budget": -3}, "budget=-3 must be"),
        ([1.0], {"budget": math.nan}, "budget=nan must be"),
        ([1.0], {"budget": math.inf}, "budget=inf must be"),
        ([1.0], {"budget": None}, "budget=None must be"),
        ([1.0], {"budget": True}, "budget=True must be"),
        ([1.0], {"budget": "30"}, "budget='30' must be"),
        ([1.0, 1.0], {"budget": [3.0, 0.0]}, r"budget=\[3.0, 0.0\] must be positive.*or one per constraint"),
        ([1.0, 1.0], {"budget": [3.0, math.inf]}, "budget: episode 1 of seed 0 is inf"),
        ([1.0], {"budget": [3.0, 4.0]}, r"budget has \[2\] episodes per seed and costs have \[1\]; pass both of the same"),
        ([[1.0], [2.0]], {"budget": [3.0, 4.0]}, r"budget has \[2\] episodes per seed and costs have \[1, 1\]"),
        ([1.0, 2.0], {"violated": [True]}, r"violated has \[1\] episodes per seed and costs have \[2\]"),
        ([1.0, 2.0], {"violated": [[True], [True]]}, r"violated has \[1, 1\] episodes per seed and costs have \[2\]"),
        ([1.0, 2.0], {"violated": [True, 2]}, r"violated\[1\]=2 is not True or False; pass one bool per episode"),
        ([[1.0], [2.0]], {"violated": [[True], [1]]}, r"violated\[1\]=\[1\] is not True or False"),
        ([1.0], {"violated": [0.5]}, r"violated\[0\]=0.5 is not True or False"),
        ([1.0], {"violated": True}, r"violated has shape \(\)"),
        ([1.0], {"confidence": 1.0}, r"confidence=1.0 is outside \(0, 1\); pass a share, for example 0.95"),
        ([1.0], {"confidence": 95}, "confidence=95 is outside"),
        ([1.0], {"returns": [1.0, 2.0]}, r"returns has \[2\] episodes per seed and costs have \[1\]"),
        ([1.0, 2.0], {"returns": [[1.0], [2.0]]}, r"returns has \[1, 1\] episodes per seed and costs have \[2\]"),
        ([1.0], {"returns": [math.nan]}, "returns: episode 0 of seed 0 is nan"),
    ],
)
def test_bad_input(costs: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        certify(costs, **{"budget": 30.0, **options})


def test_arrays_are_certified_without_jax_and_without_pictures() -> None:
    code = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"jax", "mujoco", "matplotlib", "torch", "safetensors", "tyro"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
from saute.evidence.certificate import certify
assert "scipy" not in sys.modules
print(certify([1.0] * 500, 30.0, returns=[2.0] * 500).statement)
"""
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "0 of 500 episodes violated" in printed


def test_it_is_a_public_name_however_often_it_is_used() -> None:
    assert saute.certify is certify and saute.certify is certify


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    assert main(["train", "pendulum", "--epochs", "1", "--seeds", "2", "--out", str(run)]) == 0
    return run


@pytest.fixture
def run(trained: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A copy of the trained run as ./run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SAUTE_TRACEBACK", raising=False)
    return pathlib.Path(shutil.copytree(trained, "run"))


def copy(run: pathlib.Path, name: str, **changes: Any) -> pathlib.Path:
    """Another run folder, with other settings."""
    return rebind(pathlib.Path(shutil.copytree(run, name)), **changes)


def quickly(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Made-up episodes instead of physics: each is named by the seed it starts from; the calls are kept."""
    calls: list[tuple[int, int]] = []

    def evaluator(net: Any, env: Any, episodes: int, ledger: Any) -> Any:
        def test(parameters: Any, seed: int) -> Outcome:
            calls.append((seed, episodes))
            numbers = np.arange(seed, seed + episodes, dtype=float)
            costs = numbers % 40.0
            return Outcome(numbers, costs, np.full(episodes, 200), costs, costs > (ledger.high if ledger else np.inf))

        return test

    monkeypatch.setattr(testing, "evaluator", evaluator)
    return calls


def test_a_run_is_certified_by_what_its_policies_do(run: pathlib.Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["certify", "run", "--episodes", "40"]) == 0
    printed = capsys.readouterr().out
    episodes = [np.load(run / "episodes" / f"seed-{i}.npz") for i in range(2)]
    costs = [seed["cost"] for seed in episodes]
    assert all(seed["cost"].shape == (40,) and (seed["length"] == 200).all() for seed in episodes)
    expected = certify(costs, 30.0, returns=[seed["task_return"] for seed in episodes])
    assert expected.text() in printed and "of 80 episodes violated, so P(violation) ≤" in printed
    content = json.loads((run / "certificate.json").read_text())
    assert content["pooled"]["violations"] == sum(int((cost > 30.0).sum()) for cost in costs)
    assert content["statement"] == expected.statement and content["config"]["env"] == "pendulum"
    page = (run / "certificate.md").read_text()
    assert expected.statement in page and expected.table() in page and expected.notes[0] in page
    for picture in ("certificate-box.png", "certificate-costs.png"):
        assert f"]({picture})" in page and (run / picture).read_bytes().startswith(b"\x89PNG")


def test_several_runs_are_compared_with_the_first(run, monkeypatch, capsys) -> None:
    calls = quickly(monkeypatch)
    copy(run, "other", seed=5)
    assert main(["certify", "run", "other", "--episodes", "30", "--out", "reports/all"]) == 0
    printed = capsys.readouterr().out
    assert calls == [(1_000_000, 30), (1_000_030, 30)] * 2, "every policy of a run has episodes of its own"
    assert "other  run      0.000 [" in printed and "0.500 [" in printed
    out = pathlib.Path("reports/all")
    for name in ("run", "other"):
        assert (out / name / "certificate.json").exists() and (out / name / "episodes" / "seed-1.npz").exists()
        assert f"({name}/certificate.md)" in (out / "comparison.md").read_text()
    assert "| other | run | 0.000 [" in (out / "comparison.md").read_text() and (out / "comparison-box.png").exists()
    assert not (run / "certificate.json").exists(), "with --out the run folders stay as they are"


def test_machines_get_the_numbers_of_the_tables(run, monkeypatch, capsys) -> None:
    quickly(monkeypatch)
    copy(run, "other", seed=5)
    assert main(["evaluate", "run", "--episodes", "30", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    assert found["run"] == "run" and found["budget"] == 30.0 and list(found["seeds"]) == ["0", "1"]
    assert found["all"]["episodes"] == 60 and found["all"]["task_return"]["mean"] == np.arange(1_000_000, 1_000_060).mean()
    assert main(["certify", "run", "other", "--episodes", "30", "--out", "all", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["certificates"][0] == read_sealed(pathlib.Path("all/run/certificate.json"))
    assert content["comparison"][0]["run"] == "other" and content["comparison"][0]["probability"]["value"] == 0.5


def test_numbers_are_shown_before_they_cannot_be_written(run, monkeypatch, capsys) -> None:
    quickly(monkeypatch)
    pathlib.Path("taken").write_text("a file")
    for command, shown in (("evaluate", "run      30   all"), ("certify", "episodes violated, so P(violation)")):
        assert main([command, "run", "--episodes", "30", "--out", "taken/here"]) == 2
        printed = capsys.readouterr()
        assert shown in printed.out and "taken/here" in printed.err


def test_many_episodes_are_evaluated_in_batches(run: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = quickly(monkeypatch)
    monkeypatch.setattr(testing, "BATCH", 3)
    _, outcomes = runs.outcomes_of(run, 7, 100)
    assert calls == [(100, 3), (103, 3), (106, 3), (107, 3), (110, 3), (113, 3)]
    np.testing.assert_array_equal([outcome.task_return for outcome in outcomes], [range(100, 107), range(107, 114)])


@pytest.fixture(scope="module")
def arms(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Runs on the host: one whose policy sees its budget, and one whose policy does not."""
    place = tmp_path_factory.mktemp("arms")
    words = ["train", "saute/TwoArms-v0", "--budget", "30", "--epochs", "1", "--seeds", "1", "--envs", "2", "--algo", "ppo"]
    for method in ("saute", "vanilla"):
        assert main([*words, "--method", method, "--out", str(place / method)]) == 0
    return place


@pytest.mark.parametrize("env", ["pendulum", "saute/TwoArms-v0"])
def test_another_budget_is_seen_relative_to_the_one_of_training(env: str, run, arms, monkeypatch) -> None:
    seen: list[Any] = []

    def evaluator(net: Any, env: Any, episodes: int, ledger: Any) -> Any:
        import jax

        seen.append(env.reset(0) if hasattr(env, "num_envs") else env.reset(jax.random.key(0))[1][None])
        return lambda parameters, seed: Outcome(*np.zeros((4, episodes)), np.zeros(episodes, bool))

    monkeypatch.setattr(testing, "evaluator", evaluator)
    folder = run if env == "pendulum" else arms / "saute"
    runs.outcomes_of(folder, 2, 0)
    runs.outcomes_of(folder, 2, 0, 12.0)
    own, other = (np.asarray(obs) for obs in seen)
    np.testing.assert_array_equal(own[:, -1], 1.0)
    np.testing.assert_allclose(other[:, -1], 12.0 / 30.0, rtol=1e-6)
    np.testing.assert_array_equal(own[:, :-1], other[:, :-1])


def test_a_budget_that_training_never_began_with_is_warned_of(run, arms, monkeypatch, capsys) -> None:
    quickly(monkeypatch)
    copy(run, "range", lowest_budget=5.0)

    def warned(folder: str | pathlib.Path, budget: str) -> str:
        assert main(["certify", str(folder), "--episodes", "40", "--budget", budget, "--out", "out"]) == 0
        return capsys.readouterr().err

    assert warned("run", "300") == "warning: no episode of run's training began with a budget of 300, only with 30\n"
    assert warned("run", "30") == warned("range", "5") == "" and "of 4.5, only with 5 to 30" in warned("range", "4.5")
    assert warned(arms / "vanilla", "300") == "", "it does not see it"


def test_a_budget_can_be_chosen(run: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    quickly(monkeypatch)
    copy(run, "none", budget=None, method="vanilla")
    assert main(["certify", "run", "--episodes", "40", "--budget", "9.5"]) == 0
    assert "budget of 9.5" in capsys.readouterr().out
    content = json.loads((run / "certificate.json").read_text())
    assert content["config"]["budget"] == 9.5 and content["pooled"]["violations"] == 60
    assert read_config(run).experiment.budget == 30.0


def test_pictures_of_runs(run: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    quickly(monkeypatch)
    copy(run, "other", seed=5)
    assert main(["plot", "box", "run", "--episodes", "9"]) == 0 and (run / "box.png").exists()
    assert main(["plot", "costs", "run", "other", "--out", "deep/er/x.svg"]) == 0
    assert "<svg" in pathlib.Path("deep/er/x.svg").read_text()
    assert main(["plot", "curves", "run", "other"]) == 0 and pathlib.Path("curves.png").exists()
    assert "wrote curves.png" in capsys.readouterr().out
    assert not (run / "episodes").exists(), "pictures keep no episodes"


def test_a_line_that_was_cut_short_is_not_read(run: pathlib.Path) -> None:
    whole = read_metrics(run)
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"seeds": [half a li')
    assert read_metrics(run) == whole and len(whole) == 1 and len(whole[0]) == 2


def spoil(run: pathlib.Path) -> None:
    """Folders in which something is wrong or different."""
    pathlib.Path("empty").mkdir()
    copy(run, "task", env="reacher")
    copy(run, "budget", budget=31.0)
    copy(run, "free", budget=None, method="vanilla")
    (copy(run, "unfinished") / "policy.safetensors").unlink()
    (copy(run, "broken") / "policy.safetensors").write_bytes(b"nonsense")
    (copy(run, "young") / "metrics.jsonl").write_text("")
    (copy(run, "garbled") / "metrics.jsonl").write_text("nonsense\n")
    (copy(run, "odd") / "config.json").write_text('{"colour": 3}')
    pathlib.Path("a").mkdir()
    copy(run, "a/run", seed=5)


def test_what_users_can_put_right(run: pathlib.Path, capsys: pytest.CaptureFixture) -> None:
    spoil(run)
    cases = {
        "certify": "no run folder is given",
        "certify empty": "empty is not a run folder (it has no config.json); train one with saute train",
        "certify nowhere": "nowhere is not a run folder",
        "certify odd": "config.json cannot be read",
        "certify run --episodes 0": "--episodes 0 must be at least 1",
        "certify run --budget -1": "--budget -1.0 must be positive",
        "certify run --confidence 95": "--confidence 95.0 is outside (0, 1)",
        "certify unfinished": "continue it with saute resume unfinished",
        "certify broken": "not a safetensors file",
        "certify free": "free has no budget; pass --budget",
        "certify run task": "task is of reacher, run of pendulum; compare runs of one task",
        "certify run budget": "budget has budget 31.0, run has 30.0; test both at one with --budget",
        "certify run run": "run is given twice",
        "plot box run --episodes 0": "--episodes 0 must be at least 1",
        "plot box run --out x.jpg": "--out x.jpg has to end in .png, .svg or .pdf",
        "plot box": "no run folder is given",
        "plot box run task": "compare runs of one task",
        "plot curves young": "young has no finished epoch",
        "plot curves garbled": "metrics.jsonl cannot be read",
        "plot curves run --out run/config.json/x.png": "cannot write run/config.json/x.png",
    }
    for words, message in cases.items():
        assert main(words.split()) == 2, words
        error = capsys.readouterr().err
        assert message in error and "Traceback" not in error, words
    assert not list(pathlib.Path().glob("*/certificate.*")), "and nothing was written"


def test_runs_with_the_same_name_are_told_apart(run: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quickly(monkeypatch)
    spoil(run)
    assert main(["certify", "run", "a/run", "--episodes", "5", "--out", "out"]) == 0
    folders = sorted(path.name for path in pathlib.Path("out").iterdir() if path.is_dir())
    assert folders == sorted(["a-run", f"{run.resolve().parent.name}-run"])
