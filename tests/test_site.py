"""The site and the repository: broken links and failing blocks are found, workflows fit their schemas, addresses agree."""

from __future__ import annotations

import importlib
import importlib.util
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from typing import Any

import pytest
from check_site import check, repository
from hatch_build import Address, linked
from run_blocks import blocks, found, runs

import saute
from saute.cli.main import COMMANDS, main
from saute.paper.page import read

ROOT = pathlib.Path(__file__).resolve().parents[1]
HOME = repository()
PAGES = found(ROOT / "docs")


def test_broken_links_are_found_and_others_are_not(tmp_path: pathlib.Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text('<h1 id="there">x</h1><a href="../">back</a>')
    good = (
        "other/",
        "other/#there",
        "#here",
        f"{HOME}/blob/main/README.md",
        f"{HOME}/tree/main/docs",
        "https://a.b/c",
        "mailto:a@b",
    )
    bad = ("nowhere/", "other/#nowhere", "#nowhere", f"{HOME}/blob/main/nothing.md", "https:/a", "javascript:x", "picture.png")
    links = "".join(f'<a href="{link}">x</a>' for link in good + bad)
    (tmp_path / "index.html").write_text(f'<p id="here">{links}<img src="data:x"></p>')
    problems, count = check(tmp_path, HOME)
    assert count == len(good) + len(bad) + 1
    assert sorted(line.split(": ")[1] for line in problems) == sorted(bad)


def test_blocks_are_run_in_turn_and_what_fails_is_said(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\na = 1\n```\n\n<!-- not run: needs b -->\n```python\nb\n```\n\n```python\nassert a == 1\n```\n")
    assert [(block.line, block.why) for block in blocks(page)] == [(2, None), (7, "needs b"), (11, None)]
    assert runs(page) and "2 of 3 blocks" in capsys.readouterr().out
    page.write_text(page.read_text().replace("a == 1", "a == 2"))
    assert not runs(page) and re.search(r'page.md", line 11.*\n(.*\n)*AssertionError', capsys.readouterr().out)


def test_every_block_of_python_compiles_or_says_why_it_is_not_run() -> None:
    every = [(page, block) for page in [ROOT / "README.md", *PAGES] for block in blocks(page)]
    assert sum(block.why is None for _, block in every) > 30
    for page, block in every:
        compile(block.code, f"{page.name}:{block.line}", "exec")


@pytest.mark.slow
def test_every_command_of_the_pages_is_one(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options are read, and nothing is done."""
    for command in COMMANDS.values():
        monkeypatch.setattr(importlib.import_module(command.module), command.function, lambda options: None)
    monkeypatch.chdir(tmp_path)
    swept = pathlib.Path("runs/sweep-pendulum-saute-ppo/best.toml")  # a result that one of them goes on with
    swept.parent.mkdir(parents=True)
    swept.write_text('preset = "fast"')
    shutil.copytree(ROOT / "results/sweep", "results/sweep")  # as where the commands are typed, in the repository
    told = {line for page in [ROOT / "README.md", *PAGES] for line in _commands(page.read_text())}
    assert len(told) > 40
    refused = [line for line in sorted(told) if main(shlex.split(line, comments=True)[1:])]
    assert refused == []


def _commands(page: str) -> list[str]:
    """Lines for the command line, but for those with parts that a reader has to fill in."""
    shell = "".join(re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL)).replace("\\\n", " ")
    return [line for line in shell.splitlines() if line.startswith("saute ") and not set("…$") & set(line)]


def test_every_guide_says_what_it_gets_you_and_what_to_do_first() -> None:
    guides = (ROOT / "mkdocs.yml").read_text().partition("  - Guides:\n")[2].partition("  - How it works:")[0]
    names = re.findall(r": (\w+\.md)$", guides, re.MULTILINE)
    assert len(names) == 16
    for name in names:
        page = (ROOT / "docs" / name).read_text()
        assert page.split("\n\n")[1].startswith("This page gets you "), name
        first, *others = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
        assert first.startswith("First\n") and "\n```" in first and others, name


def test_every_public_name_is_in_the_reference() -> None:
    first = (ROOT / "docs/reference/index.md").read_text()
    assert {name for name in saute.__all__ if f"`{name}`" not in first} == set()


def test_every_public_name_has_an_example_in_the_reference_that_runs() -> None:
    every = [block for page in found(ROOT / "docs/reference") for block in blocks(page)]
    run, shown = ("".join(block.code for block in every if block.why is None or told) for told in (False, True))
    elsewhere = {"from_brax", "from_gymnax", "load_shield"}  # need extras, or minutes; other tests run them
    missing = {name for name in saute.__all__ if not re.search(rf"\b{name}\b", shown if name in elsewhere else run)}
    assert missing == set()


@pytest.mark.parametrize(
    ("learner", "settings"),
    [
        ("ppo", "saute.algos.onpolicy.OnPolicySettings"),
        ("sac", "saute.algos.sac.SacSettings"),
        ("mbpo", "saute.algos.mbpo.MbpoSettings"),
        ("mbpo", "saute.learn.model.ModelSettings"),
        ("pets", "saute.algos.pets.PetsSettings"),
        ("pets", "saute.learn.planner.CemSettings"),
    ],
)
def test_every_setting_of_a_learner_is_shown_with_it(learner: str, settings: str) -> None:
    page = "index" if learner == "ppo" else learner
    assert f"::: {settings}\n" in (ROOT / f"docs/algorithms/{page}.md").read_text()
    module, _, name = settings.rpartition(".")
    assert hasattr(importlib.import_module(module), name)


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["ppo", "trpo", "cpo", "sac", "mbpo", "pets"])
def test_every_number_that_a_learner_logs_is_on_its_page(learner: str) -> None:
    small = {"ppo": "value_iterations", "trpo": "value_iterations", "cpo": "value_iterations"}
    settings = {small[learner]: 2} if learner in small else {}
    method = {"method": "vanilla"} if learner == "cpo" else {}
    run = saute.train(learner, "pendulum", seeds=1, epochs=1, settings=settings, **method)
    pages = "".join(
        (ROOT / f"docs/algorithms/{page}.md").read_text() for page in {"index", learner, *(["sac"] * (learner == "mbpo"))}
    )
    assert {name for name in run.metrics[0][0] if f"`{name}`" not in pages} == set()


def test_links_of_the_readme_lead_to_files_and_are_absolute_in_the_package() -> None:
    readme = (ROOT / "README.md").read_text()
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", readme) if not link.startswith("https://")]
    assert len(links) > 15
    for link in links:
        assert (ROOT / link.partition("#")[0]).exists(), link
    shown = linked(readme, HOME)
    assert shown.count(f"]({HOME}/") == len(links) and linked(shown, HOME) == shown
    assert f"]({HOME}/raw/main/docs/gallery/" in shown and f"]({HOME}/tree/main/examples)" in shown
    assert f"]({HOME}/blob/main/LICENSE)" in shown


def test_the_table_of_the_readme_is_that_of_the_committed_results() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    begin = lines.index("|---|---:|---:|---|---:|") + 1
    shown = [tuple(cell.strip(" *") for cell in line.strip("|").split("|")) for line in lines[begin : lines.index("", begin)]]
    known = read(ROOT / "results", "laptop", "pendulum-trpo")
    assert len(shown) == len(known) == 5
    for label, task, worst, violations, seeds in shown:
        row = known[label]
        clean = f"{sum(seed.violations == 0 for seed in row.seeds)} of {len(row.seeds)}"
        expected = f"{row.task_return.mean:.2f}", f"{row.cost.largest:.2f}", row.seen, clean
        assert (task, worst, violations, seeds) == expected


@pytest.mark.parametrize("home", [None, "https://example.org/mine"])
def test_the_package_says_where_it_comes_from_only_if_that_is_known(home: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAUTE_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("SAUTE_HOME", home)
    made: dict[str, Any] = {}
    Address(str(ROOT), {}).update(made)
    assert made["urls"].get("Homepage") == home and (f"]({home}/" in made["readme"]["text"]) is (home is not None)


def test_the_gallery_is_small_and_has_every_pretrained_policy() -> None:
    from saute.runs.pretrained import names

    page, place = (ROOT / "docs/gallery.md").read_text(), ROOT / "docs/gallery"
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == names()
    assert sum(file.stat().st_size for file in place.rglob("*.*")) < 1_500_000
    for name in names():
        statement = json.loads((place / name / "certificate.json").read_text())["statement"]
        assert f"**{statement}.**" in page and (place / name / "film.gif").read_bytes().startswith(b"GIF8")


@pytest.mark.skipif(importlib.util.find_spec("check_jsonschema") is None, reason="check-jsonschema is not installed")
@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", ".github/workflows/*.yml"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/[!c]*.yml"),
        ("github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        ("citation-file-format", "CITATION.cff"),
    ],
)
def test_forms_and_workflows_fit_their_schemas(schema: str, files: str) -> None:
    paths = [str(path) for path in ROOT.glob(files)]
    assert paths
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *paths]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_from_the_first_cell_to_the_last(notebook: pathlib.Path, tmp_path: pathlib.Path) -> None:
    if notebook.stem == "certify_sb3":
        pytest.importorskip("stable_baselines3")
    names: dict[str, object] = {"__name__": "__main__"}
    for i, code in enumerate(_cells(notebook)):
        exec(compile(code, f"{notebook.name}, cell {i}", "exec"), names)


def test_notebooks_have_no_outputs_and_compile() -> None:
    assert [notebook.stem for notebook in NOTEBOOKS] == ["certify_sb3", "own_environment"]
    for notebook in NOTEBOOKS:
        content = json.loads(notebook.read_text())
        assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in content["cells"])
        for i, code in enumerate(_cells(notebook)):
            compile(code, f"{notebook.name}, cell {i}", "exec")


def _cells(notebook: pathlib.Path) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
