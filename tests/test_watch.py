"""`saute watch`: films that can be read back, and errors that say what to do instead of where Python was."""

from __future__ import annotations

import importlib
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from saute.cli import film
from saute.cli import main as cli
from saute.core import gauge
from saute.envs.render import PAPER

Image = importlib.import_module("PIL.Image")

MODULE = """
import gymnasium as gym, numpy as np

class Photo(gym.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}
    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, render_mode=None, frame="grey"):
        self.render_mode, self.frame = render_mode, frame

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.zeros(1, np.float32), float(action[0]), False, self.time >= 4, {"costs": np.array([1.0, 3.0])}

    def render(self):
        if self.frame == "broken":
            raise OSError("no GPU")
        if self.frame == "growing":
            return np.zeros((80 + self.time, 80, 3), np.uint8)
        return "a drawing" if self.frame == "text" else np.full((81, 121, 3), 40 * self.time, np.uint8)

for frame in ("grey", "broken", "text", "growing"):
    if f"Photo{frame.title()}-v0" not in gym.registry:
        gym.register(f"Photo{frame.title()}-v0", Photo, kwargs={"frame": frame})

push = lambda obs: np.array([0.5, -9.0])
number = lambda obs: 0.5
nothing = lambda obs: None
nan = lambda obs: np.array([0.0, np.nan])
fails = lambda obs: obs[7]
constant = 3
one = lambda obs: np.array(1)
two = lambda obs: 2
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty current directory with a module of environments and policies."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("SAUTE_TRACEBACK", raising=False)
    (tmp_path / "mine.py").write_text(MODULE)
    yield tmp_path  # type: ignore[misc]
    sys.modules.pop("mine", None)


def saute(*words: str) -> int:
    """Exit code of the command, wherever it comes from."""
    try:
        return cli.main([str(word) for word in words])
    except SystemExit as end:
        return int(end.code or 0)


def gif(path: str, fps: int) -> list[np.ndarray]:
    with Image.open(path) as film:
        assert film.info["loop"] == 0
        frames = []
        for index in range(film.n_frames):
            film.seek(index)
            # Pillow joins equal frames to one that is shown for longer.
            frames += [np.asarray(film.convert("RGB"))] * round(film.info["duration"] * fps / 1000)
        return frames


def test_a_film_of_a_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        saute("watch", "pendulum", "--steps", "6", "--budget", "2", "--policy", "zero", "--mode", "test", "--size", "200") == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "wrote pendulum.gif: 7 frames of 215×216 pixels, 20 per second"
    assert lines[1].split() == ["seed", "steps", "task", "return", "cost", "budget", "violated"]
    assert lines[2].split()[:2] == ["0", "6"] and lines[2].split()[3:] == ["0.00", "2.00", "no"]
    frames = gif("pendulum.gif", fps=20)
    assert len(frames) == 7 and frames[0].shape == (216, 215, 3)
    assert all(tuple(frame[215, 100]) == PAPER for frame in frames)
    assert not np.array_equal(frames[0][:16], frames[1][:16]), "the number of the step stands above the picture"
    top, bottom, (left,), thick = gauge.layout(200, 215, 1)
    bar = frames[-1][16 + top + 3 : 16 + bottom - 3, left + thick // 2].astype(int)
    assert (np.abs(bar - gauge.colour(1.0)).max(-1) < 16).all()
    assert sorted(p.name for p in pathlib.Path().iterdir() if p.suffix == ".gif") == ["pendulum.gif"]


def test_the_picture_is_whole_beside_the_gauge_and_below_the_numbers() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (120, 160, 3), np.uint8)
    made = film.Film()
    made.add(picture, "step 3   return 1.5   budget left 2 of 4", 0.5)
    (frame,) = made
    np.testing.assert_array_equal(frame[-120:, -160:], picture)
    assert (frame[:-120] != PAPER).any() and (frame[-120:, :-160] != PAPER).any()
    made = film.Film()
    made.add(picture, "step 3   return 1.5")
    assert next(iter(made)).shape[1] == 160, "without a budget there is no gauge"


def test_an_mp4_of_two_episodes_whose_budget_runs_out(capsys: pytest.CaptureFixture[str]) -> None:
    imageio_ffmpeg = importlib.import_module("imageio_ffmpeg")
    words = ["mine:PhotoGrey-v0", "--out", "film.mp4", "--budget", "9", "9", "--policy", "mine:push", "--episodes", "2"]
    assert saute("watch", *words, "--seed", "5") == 0
    lines = capsys.readouterr().out.splitlines()
    # Odd sizes are made even by H.264, not by us.
    assert lines[0] == "wrote film.mp4: 10 frames of 141×95 pixels, 25 per second"
    assert lines[2].split() == ["5", "4", "2.00", "4.00,", "12.00", "9.00,", "9.00", "yes"]
    assert lines[3].split()[0] == "6"
    assert imageio_ffmpeg.count_frames_and_secs("film.mp4") == (10, pytest.approx(0.4))
    reader = imageio_ffmpeg.read_frames("film.mp4")
    assert next(reader)["size"] == (142, 96)
    frames = [np.frombuffer(frame, np.uint8).reshape(96, 142, 3) for frame in reader]
    grey = [float(frame[34:74, 80:120].mean()) for frame in frames]
    assert len(grey) == 10 and np.allclose(grey, [0, 40, 80, 120, 160] * 2, atol=6)


def test_a_gif_of_any_environment_at_any_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert saute("watch", "CartPole-v1", "--steps", "3", "--out", "Cart.GIF", "--size", "100", "--fps", "10") == 0
    out = capsys.readouterr().out
    assert "4 frames of 150×114 pixels, 10 per second" in out and out.split()[-3:] == ["–", "–", "–"]
    assert [frame.shape for frame in gif("Cart.GIF", fps=10)] == [(114, 150, 3)] * 4


def test_the_same_seed_gives_the_same_film(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.gif", "b.gif"):
        assert saute("watch", "CartPole-v1", "--steps", "8", "--out", name, "--seed", "4") == 0
    assert saute("watch", "CartPole-v1", "--steps", "8", "--out", "c.gif", "--seed", "5") == 0
    a, b, c = (pathlib.Path(f"{name}.gif").read_bytes() for name in "abc")
    assert a == b != c


@pytest.mark.parametrize("name", ["one", "two"])
def test_discrete_actions_are_whole_numbers_in_their_range(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = saute("watch", "CartPole-v1", "--steps", "2", "--policy", f"mine:{name}")
    assert code == (0 if name == "one" else 2)
    assert ("returned 2, which is not an action" in capsys.readouterr().err) == (name == "two")


PHOTO = "mine:PhotoGrey-v0"
LINE = MODULE.splitlines().index("fails = lambda obs: obs[7]") + 1
ERRORS: list[tuple[list[str], str]] = [
    (["pendulm"], "unknown environment 'pendulm'; did you mean 'pendulum'? Use pendulum, double_pendulum, reacher, point, car"),
    (["cartpole-v7"], "did you mean 'CartPole-v1'?"),
    (["???"], "unknown environment '???'. Use pendulum"),
    (["nowhere:Id-v0"], "the module of environment 'nowhere:Id-v0' cannot be imported: ModuleNotFoundError: No module"),
    (["mine:Nothing-v0"], "unknown environment 'mine:Nothing-v0'"),
    (["CartPole-v1", "--out", "film.avi"], "--out film.avi has to end in .gif or .mp4"),
    (["CartPole-v1", "--out", "film"], "--out film has to end in .gif or .mp4"),
    (["CartPole-v1", "--out", "no/such/film.gif"], "cannot write no/such/film.gif: No such file or directory; choose another"),
    (["CartPole-v1", "--out", "mine.py/film.gif"], "cannot write mine.py/film.gif: Not a directory"),
    (["CartPole-v1", "--out", "folder.gif"], "cannot write folder.gif: Is a directory"),
    (["saute/TwoArms-v0"], "saute/TwoArms-v0 has no pictures: its render_modes [] lack 'rgb_array'"),
    (["mine:PhotoBroken-v0"], "the environment cannot be rendered: OSError: no GPU"),
    (["mine:PhotoText-v0"], "the environment renders a str instead of RGB pictures"),
    (["mine:PhotoText-v0", "--size", "99"], "the environment renders a str instead of RGB pictures"),
    (["mine:PhotoGrowing-v0"], "change their size from (80, 80, 3) to (81, 80, 3)"),
    ([PHOTO, "--policy", "best"], "unknown policy 'best'; use random, zero, or module:function"),
    (
        [PHOTO, "--policy", "absent:act"],
        "policy 'absent:act' cannot be imported: ModuleNotFoundError: No module named 'absent'",
    ),
    ([PHOTO, "--policy", "mine:act"], "policy 'mine:act' cannot be imported: AttributeError"),
    ([PHOTO, "--policy", "mine:constant"], "policy 'mine:constant' is a int, not a function"),
    ([PHOTO, "--policy", "mine:fails"], f"policy 'mine:fails' failed at mine.py:{LINE}: IndexError: index 7 is out of bounds"),
    ([PHOTO, "--policy", "mine:number"], "policy 'mine:number' returned 0.5, which is not an action; the action space is Box("),
    ([PHOTO, "--policy", "mine:nothing"], "policy 'mine:nothing' returned None, which is not an action"),
    ([PHOTO, "--policy", "mine:nan"], "which is not an action"),
    ([PHOTO, "--budget", "5"], "step 0 failed: "),
    ([PHOTO, "--budget", "5", "-1"], "budget[1]=-1.0 must be a positive"),
    (["pendulum", "--budget", "0"], "budget=0.0 must be a positive"),
    ([PHOTO, "--unsafe-reward", "-1"], "--unsafe-reward needs a --budget"),
    ([PHOTO, "--mode", "test"], "--mode and --engine are options of our own tasks; PhotoGrey-v0 does not have them"),
    (["pendulum", "--engine", "mujoco"], "unknown engine of pendulum 'mujoco'"),
    ([PHOTO, "--fps", "60"], "--fps 60 is too fast for a GIF; use at most 50"),
    ([PHOTO, "--fps", "0"], "--fps 0.0 is out of range; use at least 1"),
    ([PHOTO, "--episodes", "0"], "--episodes 0 is out of range; use at least 1"),
    ([PHOTO, "--size", "10"], "--size 10 is out of range; use at least 64"),
    ([PHOTO, "--seed", "-1"], "--seed -1 is out of range; use at least 0"),
]


@pytest.mark.parametrize(("words", "message"), ERRORS, ids=[" ".join(words) for words, _ in ERRORS])
def test_errors_are_messages_and_leave_nothing_behind(
    words: list[str], message: str, folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "folder.gif").mkdir()
    assert saute("watch", *words) == 2
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.startswith("error: ") and printed.err.count("\n") == 1
    assert "Traceback" not in printed.err and printed.out == ""
    assert {path.name for path in folder.iterdir()} <= {"mine.py", "folder.gif", "__pycache__"}


@pytest.mark.parametrize("words", [["watch"], ["watch", "pendulum", "--budgte", "3"], ["watch", "pendulum", "--mode", "tset"]])
def test_wrong_options(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert saute(*words) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_an_old_film_survives_a_failure(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = folder / "old.gif"
    old.write_bytes(b"old")
    assert saute("watch", "mine:PhotoGrowing-v0", "--out", "old.gif") == 2
    assert old.read_bytes() == b"old"
    assert saute("watch", PHOTO, "--out", "old.gif") == 0
    assert len(gif("old.gif", fps=25)) == 5


@pytest.mark.parametrize(("module", "out"), [("tyro", "a.gif"), ("PIL", "a.gif"), ("imageio_ffmpeg", "a.mp4")])
def test_a_missing_package_names_the_extra(
    module: str, out: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert saute("watch", PHOTO, "--out", out) == 2
    error = capsys.readouterr().err
    extra = "all" if module == "tyro" else "render"
    assert error == f"error: saute watch needs {module}, which is not installed: pip install 'saute[{extra}]'\n"


def test_a_disk_that_fills_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(film, "write_gif", full)
    assert saute("watch", PHOTO, "--out", "film.gif") == 2
    assert "cannot write film.gif: No space left on device" in capsys.readouterr().err
    assert not list(pathlib.Path().glob("*.gif")) and not list(pathlib.Path().glob(".film*"))


def test_commands_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert saute("wach") == 2
    assert "unknown command 'wach'; did you mean 'watch'?" in capsys.readouterr().err
    assert saute() == saute("--help") == 0
    assert "watch       write a film" in capsys.readouterr().out
    assert saute("--version") == 0
    assert capsys.readouterr().out.startswith("saute 0.")
    assert saute("watch", "--help") == 0
    text = capsys.readouterr().out
    assert "usage: saute watch [-h] [OPTIONS] ENV" in text and "module:function" in text and "None" not in text


@pytest.mark.parametrize("words", [["--help"], ["watch", "--help"], ["watch", "pendulm"]])
def test_the_command_answers_without_loading_what_it_does_not_need(words: list[str]) -> None:
    code = f"""
import sys
from saute.cli.main import main
try:
    code = main({words!r})
except SystemExit as end:
    code = end.code
print("loaded", sorted({{"jax", "mujoco", "PIL", "pygame", "imageio_ffmpeg"}} & set(sys.modules)))
sys.exit(code)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "loaded []" and "Traceback" not in done.stderr
    assert done.returncode == (2 if "pendulm" in words else 0)


def test_developers_can_have_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAUTE_TRACEBACK", "1")
    with pytest.raises(cli.UserError, match="unknown policy"):
        saute("watch", PHOTO, "--policy", "best")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems draw without a display as they are")
@pytest.mark.parametrize("library", [None, "glfw"])
def test_mujoco_draws_without_a_display_or_the_error_says_how(tmp_path: pathlib.Path, library: str | None) -> None:
    known = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL")}
    words = [sys.executable, "-m", "saute", "watch", "InvertedPendulum-v5", "--steps", "2", "--out", str(tmp_path / "film.gif")]
    given = {} if library is None else {"MUJOCO_GL": library}
    done = subprocess.run(words, capture_output=True, text=True, env=known | given)
    assert (tmp_path / "film.gif").exists() == (done.returncode == 0)
    assert done.returncode == 0 or ("set MUJOCO_GL=egl" in done.stderr and "Traceback" not in done.stderr)
    assert library is None or done.returncode == 2
