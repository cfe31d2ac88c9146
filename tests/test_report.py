"""The report: its numbers are those of evaluate and certify, its texts are text, and nothing in it asks another machine."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import http.client
import json
import pathlib
import re
import shutil
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from report_toys import NASTY, made_up, reported, steps, two_budgets

from saute.cli import report as command
from saute.cli.live import HOST, Live, serving
from saute.cli.main import main
from saute.core.errors import UserError
from saute.evidence import web
from saute.evidence.certificate import certify
from saute.runs import facts as of
from saute.runs.budgets import AtBudget, at_each_budget, paths_of, plane_of
from saute.runs.folder import describe, read_config
from saute.runs.outcomes import outcomes_of
from saute.runs.pretrained import located

FEW = ["--episodes", "4", "--sweep", "4", "--no-film"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder of a good policy, with two epochs of a training that never was."""
    out = tmp_path_factory.mktemp("runs") / "run"
    shutil.copytree(located("pretrained:pendulum-saute-trpo"), out)
    numbers = {name: 7.0 for name in ("task_return", "cost", "worst_cost", "cost_rate", "violation_rate", "episodes")}
    describe(out, read_config(out), [[numbers] * 5] * 2)
    return out


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "library", lambda: ["window.Bokeh = {};"])
    monkeypatch.setattr(command, "library", lambda: None)


def the_facts(page: str) -> Any:
    return json.loads(re.findall(r'<script type="application/json" id="facts">(.*?)</script>', page, re.DOTALL)[0])


def facts(**changes: Any) -> dict[str, Any]:
    return {"title": NASTY, "runs": [{"name": NASTY, "statement": NASTY}], **changes}


@pytest.mark.parametrize(
    "name", ["", pytest.param("pretrained:car-saute-trpo", marks=pytest.mark.slow)], ids=["native", "host"]
)
def test_at_every_budget_the_episodes_are_those_of_evaluate_to_the_last_bit(run: pathlib.Path, name: str) -> None:
    run = pathlib.Path(name) if name else run
    swept = {one.budget: one.outcomes for one in at_each_budget(run, [3.0, 30.0], 4, 7, 6)}
    for budget, outcomes in swept.items():
        _, expected = outcomes_of(run, 4, 7, budget)
        for one, other in zip(outcomes, expected, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True) if b is not None)
    assert not np.array_equal(swept[3.0][0].task_return, swept[30.0][0].task_return)


def test_paths_end_with_their_episode_and_tell_the_share_that_is_left() -> None:
    ended = [[False, False], [True, False], [False, False], [False, True]]
    told = steps(ended, [[9.0, 10.0], [8.0, 5.0], [10.0, 0.0], [9.0, -5.0]])
    first, second = paths_of(AtBudget(10.0, [], told), plane_of("own", False))
    assert (first.step.tolist(), first.along.tolist(), first.remaining.tolist()) == ([0, 1], [1.0, 2.0], [0.9, 0.8])
    assert second.remaining.tolist() == [1.0, 0.5, 0.0, -0.5] and second.across.tolist() == [0, 1, 2, 3]
    several = steps([[False], [True]], [[[1.0, 8.0]], [[1.0, 2.0]]])
    assert paths_of(AtBudget((2.0, 8.0), [], several), plane_of("own", False))[0].remaining.tolist() == [0.5, 0.25]
    assert [
        len(column)
        for column in paths_of(AtBudget(1.0, [], steps([[False]] * 99 + [[True]], [[1.0]] * 100)), plane_of("own", False), 7)[0]
    ] == [7] * 4


def test_the_pendulum_is_drawn_by_its_angle_from_upright_and_its_unsafe_angles() -> None:
    physical = np.array([[[np.pi / 2, 1.0]], [[2 * np.pi - 0.1, 2.0]]])
    plane = plane_of("pendulum", True)
    (path,) = paths_of(
        AtBudget(1.0, [], steps([[False], [True]], [[1.0], [1.0]], types.SimpleNamespace(physical=physical))), plane
    )
    assert path.across == pytest.approx([90.0, -np.degrees(0.1)]) and path.along.tolist() == [1.0, 2.0]
    assert plane.unsafe is not None
    across, _ = plane.unsafe(types.SimpleNamespace(unsafe_angle=25.0, unsafe_width=50.0))
    assert sorted(set(across.tolist())) == [-25.0, 75.0]
    assert plane_of("pendulum", False) == plane_of("anything", True), "states of the host are not at hand"


def test_tables_have_the_cells_of_the_command_line_and_all_digits_of_the_numbers() -> None:
    tested = made_up([1.0, 2.0, 12.0, 1.5], [False, False, True, False], NASTY)
    shown = of.evaluation([tested])
    assert shown["rows"][-1][1:] == ["10", "all", "104.12 ± 4.56", "4.12", "12.00", "1 of 4, so ≤ 75.140 % at 95 %"]
    assert shown["records"][-1]["run"] == NASTY and shown["records"][-1]["task_return_mean"] == 104.125
    assert shown["records"][-1]["bound"] == pytest.approx(0.7513953967)
    (proved,) = of.certificates(tested)
    assert (
        proved["rows"] == [row for row in tested.certificate.rows[1:]] and proved["heads"][1:] == tested.certificate.rows[0][1:]
    )
    expected = json.loads(tested.certificate.json())["seeds"][0]
    assert (
        proved["records"][0]["bound"] == expected["bound"]
        and proved["records"][0]["task_return_low"] == expected["task_return"]["low"]
    )


def test_what_was_reported_fits_into_json() -> None:
    shown = reported(made_up([1.0, 20.0], [False, True], NASTY))
    assert json.loads(web.as_data(shown))["runs"][0]["slider"]["trained"] == [False, False, True, False]
    assert "<" not in web.as_data(shown) and "&" not in web.as_data(shown)


def test_several_budgets_have_a_row_a_chart_and_a_table_each() -> None:
    shown = reported(two_budgets())
    (run,) = shown["runs"]
    assert run["slider"]["budgets"] == ["2 1", "5 2.5", "10 5", "12 6"] and [len(at) for at in run["slider"]["at"]] == [3] * 4
    record = run["slider"]["records"][2]
    assert (record["cost_mean_0"], record["cost_worst_1"], record["violations"]) == (4.0, 6.0, 1)
    assert [one["title"] for one in shown["distributions"]] == [
        "Return of an episode", "Cost 0 of an episode", "Cost 1 of an episode"
    ]  # fmt: skip
    assert [one["title"] for one in run["certificates"]] == [
        "Certificate for any of the budgets", "Constraint 0, a budget of 10", "Constraint 1, a budget of 5"
    ]  # fmt: skip
    assert {one["title"] for one in shown["curves"]} == {"Mean task return"}


def test_distributions_are_shares_over_common_bins() -> None:
    one, other = made_up([0.0, 1.0, 2.0, 3.0], [False] * 4), made_up([30.0, 30.0], [True] * 2)
    returns, costs = of.distributions([one, other], 10.0)
    assert returns["budget"] is None and costs["budget"] == 10.0
    assert costs["edges"][0] == 0.0 and costs["edges"][-1] == 30.0 and len(costs["edges"]) == 31
    assert [sum(run["share"]) for run in costs["runs"]] == pytest.approx([1.0, 1.0]) and costs["runs"][1]["share"][-1] == 1.0
    assert costs["runs"][0] == costs["runs"][0] | {"x": [0.0, 1.0, 2.0, 3.0], "below": [0.25, 0.5, 0.75, 1.0]}


def test_curves_have_gaps_and_runs_without_a_training_have_none() -> None:
    config: Any = types.SimpleNamespace(settings=types.SimpleNamespace(steps_per_epoch=100))
    epochs = [[{"cost": 1.0}, {"cost": 3.0}], [{"cost": float("nan")}, {"cost": float("nan")}]]
    (cost,) = of.curves({"a": (config, epochs), "b": (config, None)}, 2.0)
    assert cost["runs"] == [{"step": [100, 200], "mean": [2.0, None], "least": [1.0, None], "greatest": [3.0, None]}, None]
    assert cost["budget"] == 2.0 and of.curves({"b": (config, None)}, 2.0) == []


class Scripts(html.parser.HTMLParser):
    """What a browser would see of a page: its elements, its scripts, and its policy."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.scripts, self.policy, self.inside = list[str](), list[str](), "", False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        known = dict(attrs)
        self.inside = tag == "script" and "type" not in known
        if known.get("http-equiv") == "Content-Security-Policy":
            self.policy = known["content"] or ""

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.scripts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self.inside = False


def test_texts_of_strangers_are_text_and_only_our_scripts_may_run(library: None) -> None:
    page = web.page(facts())
    seen = Scripts(page)
    assert seen.tags.count("script") == 3 and "img" not in seen.tags
    digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in seen.scripts]
    assert re.findall(r"'sha256-([^']+)'", seen.policy) == digests and len(digests) == 2
    assert "default-src 'none'" in seen.policy and "connect-src" not in seen.policy and "unsafe-eval" not in seen.policy
    assert the_facts(page) == facts()
    assert "connect-src 'self'" in Scripts(web.page(facts(live=2000))).policy


def test_it_is_written_with_the_numbers_of_certify_and_evaluate(
    run: pathlib.Path, tmp_path: pathlib.Path, library: None, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "a.html"
    assert main(["report", str(run), *FEW, "--out", str(out)]) == 0
    assert f"wrote {out}: " in capsys.readouterr().out
    shown = the_facts(out.read_text())
    _, outcomes = outcomes_of(run, 4, 1_000_000)
    proved = certify(
        [one.spent for one in outcomes],
        30.0,
        violated=[one.violated for one in outcomes],
        returns=[one.task_return for one in outcomes],
    )
    (one,) = shown["runs"]
    assert (
        one["statement"] == proved.statement
        and one["certificates"][0]["rows"] == proved.rows[1:]
        and one["notes"] == list(proved.notes)
    )
    assert dict(one["conditions"])["policies, SHA-256"] == hashlib.sha256((run / "policy.safetensors").read_bytes()).hexdigest()
    own = one["slider"]["budgets"].index("30")
    assert (
        len(one["slider"]["budgets"]) == 24
        and own == one["slider"]["start"]
        and one["slider"]["trained"] == [i == own for i in range(24)]
    )
    assert main(["evaluate", str(run), "--episodes", "4", "--budget", "30", "--json", "--out", str(tmp_path / "e")]) == 0
    told = json.loads(capsys.readouterr().out)["runs"][0]["all"]
    record = one["slider"]["records"][own]
    assert [record["task_return_mean"], record["cost_worst"], record["bound"]] == [
        told["task_return"]["mean"],
        told["cost"]["worst"],
        told["bound"],
    ]
    assert len(one["slider"]["paths"]) == 24 and one["film"] is None and len(shown["curves"]) == 4
    assert not list(run.glob("*.html")) and not (run / "episodes").exists(), "a report writes nothing into the run folder"


@pytest.mark.slow
def test_the_film_is_in_the_page_and_the_others_say_why_they_have_none(
    run: pathlib.Path, tmp_path: pathlib.Path, library: None, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.html"
    assert main(["report", str(run), "--episodes", "4", "--sweep", "0", "--out", str(out)]) == 0
    (one,) = the_facts(out.read_text())["runs"]
    kinds = {name: one["film"][name].partition(";base64,") for name in ("video", "poster", "still")}
    assert {name: kind for name, (kind, _, _) in kinds.items()} == {
        "video": "data:video/mp4", "poster": "data:image/png", "still": "data:image/png"
    }  # fmt: skip
    assert base64.b64decode(kinds["video"][2])[4:8] == b"ftyp" and "return 17" in one["film"]["note"]
    assert one["slider"] is None and "--sweep 0" in one["sliderNote"]
    capsys.readouterr()
    vanilla = shutil.copytree(run, tmp_path / "vanilla@0")  # names with an @ are no films of a seed
    assert main(["report", str(vanilla), *FEW[:3], "0", "--out", str(out)]) == 0
    assert the_facts(out.read_text())["runs"][0]["filmNote"].startswith("There is no film: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "report.pdf"], "has to end in .html"),
        (["--confidence", "2"], "--confidence 2.0 is outside (0, 1)"),
        (["--episodes", "0"], "--episodes 0 must be at least 1"),
        (["--live", "--port", "99999"], "--port 99999 cannot be used"),
    ],
)
def test_what_is_wrong_is_said(
    run: pathlib.Path, library: None, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["report", str(run), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_without_the_library_it_says_how_to_get_it(
    run: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "bokeh", None)
    assert main(["report", str(run)]) == 2
    assert "saute report needs bokeh, which is not installed: pip install 'saute[report]'" in capsys.readouterr().err


def asked(port: int, path: str, host: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    return answer.status, answer.read()


def now(status: str = "epoch 1") -> dict[str, Any]:
    return facts(runs=[{"name": NASTY, "status": status}], curves=[])


@pytest.fixture
def live() -> Live:
    return Live(lambda: "first", now, lambda: facts(extra=1))


@pytest.fixture
def port(live: Live, library: None) -> Iterator[int]:
    with serving(live, 0) as server:
        assert server.server_address[0] == "127.0.0.1"
        yield server.server_port


def test_the_live_page_is_for_this_machine_only(port: int) -> None:
    status, content = asked(port, "/")
    assert status == 200 and b"<!doctype html>" in content and b"<img" not in content
    assert asked(port, "/", f"localhost:{port}")[0] == 200
    assert asked(port, "/facts.json", f"evil.example:{port}")[0] == 404
    assert asked(port, "/../pyproject.toml")[0] == 404


def test_policies_are_tested_when_they_are_others_and_again_if_that_failed() -> None:
    there, calls = ["a"], list[str]()

    def test() -> dict[str, Any]:
        calls.append(there[0])
        if len(calls) == 1:
            raise UserError("it changed while it was tested")
        return facts(extra=len(calls))

    live = Live(lambda: there[0], now, test)
    assert live.facts()["tested"] == "" and "extra" not in live.facts()
    for _ in range(3):
        live.look()
    assert calls == ["a", "a"] and live.facts()["tested"] == "a" and live.facts()["extra"] == 2
    there[0] = "b"
    live.look()
    shown = live.facts()
    assert shown["tested"] == "b" and shown["runs"] == [{"name": NASTY, "statement": NASTY, "status": "epoch 1"}]


def test_what_a_run_says_of_itself_while_it_trains(run: pathlib.Path) -> None:
    shown = command.told_now(command.Report((run,)))
    assert shown["runs"][0]["status"].startswith("Training, epoch 2 of 85: return 7")
    assert [one["title"] for one in shown["curves"]] == ["Mean task return", "Mean cost", "Largest cost", "Cost rate"]
