"""Trajectories over the cost field: what is drawn is what happened, and policies on the way are those that there were."""

from __future__ import annotations

import pathlib

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.text import Text

import saute
from saute.cli.main import main
from saute.cli.trajectories import field_of, panels
from saute.core.errors import UserError
from saute.envs import TASKS, make_task
from saute.envs.plane import cost_on, plane_of
from saute.envs.safe_pendulum import angle_cost
from saute.evidence.trajectories import Field, Trajectory, trajectory_plot
from saute.runs.folder import discard_start, snapshots_of

MAPPED = ("pendulum", "double_pendulum", "reacher", "point", "car")


@pytest.mark.parametrize("name", MAPPED)
def test_every_place_of_a_map_is_that_of_its_state(name: str) -> None:
    plane = plane_of(make_task(name))
    assert plane is not None
    left, right, bottom, top = plane.extent
    places = np.random.default_rng(0).uniform((left, bottom), (right, top), (50, 2))
    states = plane.states(places)
    np.testing.assert_allclose(plane.places(states), places, atol=1e-9)
    assert states.shape == (50, make_task(name).state_size)


@pytest.mark.parametrize("name", MAPPED)
def test_the_field_is_the_cost_of_the_task(name: str) -> None:
    task, points = make_task(name), 9
    plane = plane_of(task)
    assert plane is not None
    left, right, bottom, top = plane.extent
    field = cost_on(task, plane, points)
    for row, y in enumerate(np.linspace(bottom, top, points)):
        for column, x in enumerate(np.linspace(left, right, points)):
            state = tuple(plane.states(np.array([x, y])).tolist())
            expected = task.cost(state, (0.0,) * task.action_size, state)
            assert field[row, column] == pytest.approx(expected, abs=1e-5)


def test_fields_are_those_of_the_paper() -> None:
    pendulum, reacher, point = (field_of(name)[1].cost for name in ("pendulum", "reacher", "point"))
    assert pendulum.shape == (201, 201) and (pendulum == pendulum[0]).all(), "only the angle costs"
    peak = np.linspace(-180, 180, 201)[pendulum[0].argmax()]
    assert abs(peak - 25.0) <= 0.9 and (pendulum[0] > 0).sum() == pytest.approx(100 / 1.8, abs=1)
    assert 0.55 < reacher.max() <= 0.5586 and 0.0 < (reacher > 0).mean() < 0.1
    assert point[100, 100] == 1.0 and (point > 0).mean() == pytest.approx(np.pi * 0.7**2 / 3.5**2, rel=0.02)


def made_up(violated: bool, *places: tuple[float, float]) -> Trajectory:
    return Trajectory(np.array(places), 7.0, violated)


FIELD = Field(np.ones((3, 3)), (-180.0, 180.0, -8.0, 8.0), ("angle", "speed"), period=360.0)


def test_pictures_show_every_episode_and_say_how_many_violated() -> None:
    safe, unsafe = made_up(False, (170.0, 0.0), (-170.0, 1.0), (-150.0, 2.0)), made_up(True, (10.0, 0.0), (20.0, 1.0))
    figure = trajectory_plot({"epoch 1": [unsafe, safe], "epoch 9": [safe]}, FIELD, "pendulum")
    first, second = figure.axes
    said = " ".join(text.get_text() for text in figure.findobj(Text))
    assert "epoch 1\n1 of 2 violated, return 7" in said and "epoch 9\n0 of 1 violated" in said
    assert figure.get_figwidth() == 3.3 and min(text.get_fontsize() for text in figure.findobj(Text)) >= 6.0
    lines = [line.get_xydata() for line in first.lines if line.get_linestyle() == "-" and len(line.get_xydata()) > 1]
    np.testing.assert_array_equal(lines[0], [(170, 0), (180, 0.5), (np.nan, 0.5), (-180, 0.5), (-170, 1), (-150, 2)])
    np.testing.assert_array_equal(lines[1], unsafe.places)
    assert len({line.get_color() for line in first.lines if len(line.get_xydata()) > 1}) == 2
    assert [image.get_array().shape for image in second.images] == [(3, 3)]
    with pytest.raises(ValueError, match="nothing to draw"):
        trajectory_plot({"epoch 1": []}, FIELD)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A run that was interrupted after its first epoch, and resumed."""
    run = tmp_path_factory.mktemp("runs") / "run"
    assert main(["train", "pendulum", "--epochs", "1", "--seeds", "1", "--snapshots", "1", "--out", str(run)]) == 0
    (run / "policy.safetensors").rename(run.parent / "first.safetensors")
    assert main(["resume", str(run), "--epochs", "3", "--snapshots", "2"]) == 0
    return run


def test_policies_on_the_way_are_kept(run: pathlib.Path) -> None:
    assert [file.name for file in snapshots_of(run)] == ["policy-000001.safetensors", "policy-000003.safetensors"]
    first, third = (saute.load_policy(file) for file in snapshots_of(run))
    obs, left = [0.6, 0.8, 1.0], 12.0
    assert first(obs, left) == saute.load_policy(run.parent / "first.safetensors")(obs, left)
    assert third(obs, left) == saute.load_policy(run)(obs, left) != first(obs, left)


def test_what_is_drawn_is_what_the_policies_do(run: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plane, _ = field_of("pendulum")
    drawn = panels({run: "run"}, plane, 3, 0, 2.0)
    assert list(drawn) == ["epoch 1", "epoch 3"]
    for one in [one for episodes in drawn.values() for one in episodes]:
        assert one.places.shape == (201, 2) and abs(one.places[0, 0]) > 168.0, "a test start, hanging"
        cost = sum(float(angle_cost(jnp.deg2rad(angle), 25.0, 50.0)) for angle in one.places[:-1, 0])
        assert one.violated == (cost > 2.0)
    monkeypatch.chdir(run.parent)
    assert main(["plot", "trajectories", "run", "pretrained:pendulum-saute-trpo", "--episodes", "1"]) == 0
    assert pathlib.Path("trajectories.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_drawn_or_kept_is_said(run: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "trajectories", str(run), "--episodes", "0"]) == 2
    assert "--episodes 0 must be at least 1" in capsys.readouterr().err
    assert main(["resume", str(run), "--epochs", "4", "--snapshots", "-1"]) == 2
    assert "--snapshots -1 must be at least 0" in capsys.readouterr().err


@pytest.mark.parametrize("name", [*sorted(TASKS.keys() - set(MAPPED)), "Pendulum-v1"])
def test_what_has_no_map_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"which only the five tasks of the paper have, and {name} has not; use saute watch"):
        field_of(name)


def test_a_start_that_came_to_nothing_leaves_no_policies(tmp_path: pathlib.Path) -> None:
    for name in ("config.json", "policy-000001.safetensors"):
        (tmp_path / "run" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "run" / name).touch()
    discard_start(tmp_path / "run")
    assert not (tmp_path / "run").exists()
