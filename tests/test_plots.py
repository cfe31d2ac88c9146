"""Pictures: what is drawn is what was given, and files are of the kind that their name says."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.legend import Legend
from matplotlib.text import Text

from saute.evidence.plots import LINES, PALETTE, Group, box_plot, cost_distribution, save, training_curves

BUDGET = 30.0


def groups() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return {name: (rng.normal(k, 1.0, (2, 50)), rng.gamma(5.0, 4.0, (2, 50))) for k, name in enumerate(["vanilla", "sauté"])}


def curves(epochs: int = 4, seeds: int = 3, names: tuple[str, ...] = ("task_return", "cost", "worst_cost", "cost_rate")) -> Any:
    return [[{name: 10.0 * i + e + s for i, name in enumerate(names)} for s in range(seeds)] for e in range(epochs)]


def dashed(axis: Any) -> list[Any]:
    return [line for line in axis.lines if line.get_label() == "budget"]


def medians(axis: Any) -> list[float]:
    lines = [line for line in axis.lines if line.get_linewidth() == 1.4 and len(set(line.get_xdata())) == 1]
    return sorted(float(line.get_xdata()[0]) for line in lines if len(line.get_ydata()) == 2)


def words(figure: Any) -> str:
    """All that is written on a figure."""
    return " ".join(text.get_text().replace("\n", " ") for text in figure.findobj(Text))


def test_boxes_show_quartiles_means_outliers_and_the_budget() -> None:
    given = groups()
    low, high = np.quantile(given["sauté"][1], [0.25, 0.75])
    given["sauté"][1][0, :2] = high + 2.0 * (high - low), 500.0
    returns, costs = box_plot(given, BUDGET).axes
    for axis, column in ((returns, 0), (costs, 1)):
        data = [np.ravel(pair[column]) for pair in given.values()]
        assert medians(axis) == pytest.approx(sorted(np.median(values) for values in data))
        means = [line for line in axis.lines if line.get_marker() == "o"]
        assert [line.get_xdata()[0] for line in means] == pytest.approx([values.mean() for values in data])
        assert all(line.get_markerfacecolor() == "black" for line in means)
        boxes = [patch.get_path().vertices[:, 0] for patch in axis.patches]
        for box, values in zip(boxes, data, strict=True):
            assert (box.min(), box.max()) == pytest.approx(tuple(np.quantile(values, [0.25, 0.75])))
        outliers = [line for line in axis.lines if line.get_marker() == "."]
        for line, values in zip(outliers, data, strict=True):
            low, high = np.quantile(values, [0.25, 0.75])
            beyond = (values > high + 1.5 * (high - low)) | (values < low - 1.5 * (high - low))
            assert sorted(line.get_xdata()) == pytest.approx(sorted(values[beyond]))
    assert [label.get_text() for label in returns.get_yticklabels()] == ["vanilla", "sauté"]
    assert returns.yaxis_inverted(), "the first group is on top"
    assert not dashed(returns)
    assert [line.get_xdata()[0] for line in dashed(costs)] == [BUDGET] and dashed(costs)[0].get_linestyle() == "--"


def test_pictures_say_what_they_show_and_how_many_episodes_violated() -> None:
    costs = np.array([[10.0, 40.0, 50.0], [30.0, 20.0, 31.0]])
    own = np.array([[True, True, True], [False, False, True]])
    given = {"by cost": Group(costs, costs), "by its own budgets": Group(costs, costs, own)}
    for draw in (box_plot, cost_distribution):
        said = words(draw(given, BUDGET, "pendulum"))
        assert "3 of 6" in said and "4 of 6" in said and "Dashed: the budget 30." in said and "pendulum: " in said
        assert " of 6" not in words(draw({"by cost": given["by cost"]})), "nothing is violated without a budget"
    said = words(training_curves({"a": curves()}, BUDGET))
    assert "Cost rate: cost of the whole training so far per step, times" in said and "least to the greatest seed" in said


def test_pictures_are_as_wide_as_a_column_and_their_letters_can_be_read() -> None:
    for figure in (box_plot(groups(), BUDGET), training_curves({"a": curves()}, BUDGET), cost_distribution(groups(), BUDGET)):
        assert figure.get_figwidth() == 3.3
        assert min(text.get_fontsize() for text in figure.findobj(Text)) >= 6.0


def test_short_runs_and_single_epochs_have_markers() -> None:
    def marked(epochs: list[float]) -> Any:
        return training_curves({"a": [[{"cost": cost}] for cost in epochs]}).axes[0].lines[0].get_markevery()

    assert marked([1.0, 2.0, 3.0]) == [0, 1, 2]
    nothing = float("nan")
    long = [1.0] * 28 + [nothing, 2.0, nothing]
    assert marked(long) == [29] and marked(long[:28]) is None


def test_boxes_differ_in_colour_and_in_hatch() -> None:
    boxes = box_plot({str(i): (np.arange(5.0), np.arange(5.0)) for i in range(6)}).axes[0].patches
    assert len({box.get_facecolor() for box in boxes}) == len({box.get_hatch() for box in boxes}) == 6
    assert boxes[0].get_facecolor()[:3] == to_rgba(PALETTE[0])[:3]


def test_curves_show_mean_and_range_of_the_seeds() -> None:
    figure = training_curves({"a": curves(), "b": curves(epochs=6, seeds=1)}, BUDGET)
    assert [axis.get_title() for axis in figure.axes] == ["mean task return", "mean cost", "largest cost", "cost rate"]
    for i, axis in enumerate(figure.axes):
        first, second = axis.lines[:2]
        np.testing.assert_allclose(first.get_xydata(), [[e + 1, 10 * i + e + 1] for e in range(4)])
        np.testing.assert_allclose(second.get_xydata(), [[e + 1, 10 * i + e] for e in range(6)])
        band = axis.collections[0].get_paths()[0].vertices
        at_last = band[band[:, 0] == 4.0][:, 1]
        assert (at_last.min(), at_last.max()) == (10 * i + 3, 10 * i + 5)
        assert first.get_linestyle() != second.get_linestyle() and first.get_color() != second.get_color()
        assert [line.get_ydata()[0] for line in dashed(axis)] == ([] if i == 0 else [BUDGET])
    (legend,) = figure.findobj(Legend)
    assert [text.get_text() for text in legend.get_texts()] == ["a (3 seeds)", "b (1 seed)", "budget"]


def test_a_legend_of_long_names_stays_inside_the_picture() -> None:
    numbers = [[{"task_return": 1.0, "cost": 1.0, "worst_cost": 1.0, "cost_rate": 1.0}] * 5] * 2
    names = [f"HalfCheetah, Sauté SAC, all budgets, at {budget}" for budget in (10, 25, 50)]
    figure = training_curves(dict.fromkeys(names, numbers), 25.0)
    figure.canvas.draw()
    (legend,) = figure.findobj(Legend)
    extent = legend.get_window_extent()
    assert extent.x0 >= 0.0 and extent.x1 <= figure.bbox.x1
    assert len({text.get_text() for text in legend.get_texts()}) == 4, "their ends tell them apart"


def test_curves_of_longer_epochs_go_further() -> None:
    figure = training_curves({"a": curves(), "b": curves()}, steps_per_epoch={"a": 4000, "b": 10_000})
    for axis in figure.axes:
        assert [list(line.get_xdata()) for line in axis.lines[:2]] == [[4e3, 8e3, 12e3, 16e3], [1e4, 2e4, 3e4, 4e4]]
        assert axis.xaxis.get_major_formatter()(40_000) == "40k"
    assert [axis.get_xlabel() for axis in figure.axes] == ["", "", *["steps of each seed"] * 2]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("nothing", [np.nan, None])
def test_a_curve_has_a_gap_where_no_episode_ended(nothing: float | None, tmp_path: pathlib.Path) -> None:
    seeds = [(1.0, 3.0), (nothing, 5.0), (nothing, nothing), (4.0, 8.0)]
    figure = training_curves({"a": [[{"cost": cost} for cost in epoch] for epoch in seeds]}, BUDGET)
    (axis,) = figure.axes
    np.testing.assert_array_equal(axis.lines[0].get_ydata(), [2.0, 5.0, np.nan, 6.0])
    parts = [part.vertices for part in axis.collections[0].get_paths()]
    assert [(part[:, 0].min(), part[:, 0].max()) for part in parts] == [(1.0, 2.0), (4.0, 4.0)]
    assert [(part[:, 1].min(), part[:, 1].max()) for part in parts] == [(1.0, 5.0), (4.0, 8.0)]
    never = training_curves({"a": [[{"cost": nothing}], [{"cost": nothing}]]}, BUDGET)
    assert np.isnan(never.axes[0].lines[0].get_ydata()).all()
    for i, drawn in enumerate((figure, never)):
        save(drawn, tmp_path / f"{i}.png")


def test_a_metric_that_a_run_lacks_has_no_panel() -> None:
    old = curves(names=("task_return", "cost", "worst_cost"))
    figure = training_curves({"new": curves(), "old": old})
    assert [axis.get_title() for axis in figure.axes] == ["mean task return", "mean cost", "largest cost"]
    assert not any(dashed(axis) for axis in figure.axes)


def test_distribution_of_costs() -> None:
    costs = np.array([1.0, 2.0, 2.0, 40.0])
    histogram, other, cumulative = cost_distribution({"a": (costs, costs), "b": (costs, costs + 1)}, BUDGET).axes
    first = cumulative.lines[0]
    shares = dict(zip(first.get_xdata(), first.get_ydata(), strict=True))
    assert (shares[1.0], shares[2.0], shares[40.0]) == (0.25, 0.75, 1.0)
    assert max(histogram.patches[0].get_path().vertices[:, 1]) == pytest.approx(0.75)
    np.testing.assert_array_equal(histogram.get_xlim(), other.get_xlim())
    for axis in (histogram, other, cumulative):
        assert [line.get_xdata()[0] for line in dashed(axis)] == [BUDGET]
    assert first.get_linestyle() != cumulative.lines[1].get_linestyle() and "--" not in LINES


def test_equal_costs_can_be_drawn(tmp_path: pathlib.Path) -> None:
    same = {"safe": (np.zeros(5), np.zeros(5))}
    for name, figure in (("box", box_plot(same, BUDGET)), ("costs", cost_distribution(same, BUDGET))):
        assert save(figure, tmp_path / f"{name}.png").stat().st_size > 1000


def test_long_names_leave_room_for_the_boxes(tmp_path: pathlib.Path) -> None:
    given = {f"{'a-run-with-a-very-long-name' * 3}-{i}": pair for i, pair in enumerate(groups().values())}
    for figure in (box_plot(given, BUDGET), cost_distribution(given, BUDGET)):
        save(figure, tmp_path / "x.png")
        assert all(axis.get_window_extent().height > 20 and axis.get_window_extent().width > 70 for axis in figure.axes)


@pytest.mark.parametrize(
    ("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF"), (".PNG", b"\x89PNG")]
)
def test_files_are_of_the_kind_of_their_suffix_equal_for_equal_figures_and_alone(tmp_path, suffix, magic) -> None:
    contents = [save(box_plot(groups(), BUDGET), tmp_path / f"{i}{suffix}").read_bytes() for i in range(2)]
    assert contents[0].startswith(magic) and contents[0] == contents[1]
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"0{suffix}", f"1{suffix}"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure, file = box_plot(groups()), tmp_path / "a.png"
    file.write_text("old")

    def half(path: Any, **_: Any) -> None:
        pathlib.Path(path).write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(figure, "savefig", half)
    with pytest.raises(OSError, match="No space left"):
        save(figure, file)
    assert file.read_text() == "old" and list(tmp_path.iterdir()) == [file]


def test_no_global_state() -> None:
    box_plot(groups(), BUDGET)
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: save(box_plot(groups()), "a.jpg"), r"a.jpg has to end in .png, .svg or .pdf"),
        (lambda: save(box_plot(groups()), "a"), r"a has to end in"),
        (lambda: box_plot({}), "nothing to draw; pass at least one"),
        (lambda: cost_distribution({}), "nothing to draw"),
        (lambda: training_curves({}), "nothing to draw"),
        (lambda: box_plot({"a": ([1.0], [])}), "episode cost of a has 0 episodes"),
        (lambda: box_plot({"a": ([np.nan], [1.0])}), "task return of a: episode 0 of seed 0 is nan"),
        (lambda: training_curves({"a": []}), "a has no epochs"),
        (lambda: training_curves({"a": [*curves(1, 2), *curves(1, 1)]}), "a: epoch 1 has 1 seeds, the first"),
        (lambda: training_curves({"a": curves(names=("entropy",))}), "share none of the metrics task_return, cost"),
    ],
)
def test_bad_input(call: Any, message: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        call()
    assert not list(tmp_path.iterdir())
