"""Film, box plot and certificate of every pretrained policy: `python scripts/gallery.py` writes them and docs/gallery.md.

It took a quarter of an hour on one busy core, most of it for the Car; `python scripts/gallery.py NAME` renews one policy only.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
from typing import Any

from PIL import Image, ImageSequence

from saute.cli.main import main as saute
from saute.core.files import read_sealed
from saute.core.seeds import block
from saute.runs.pretrained import names

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "gallery.md"
EPISODES, SEED = 1000, block(9).start
"""Of each seed, from starts that nothing was chosen by."""
HEIGHT, EVERY, COLOURS = 200, 5, 48
"""Of a film: pixels, one frame of so many, colours."""
INTRODUCTION = f"""# Gallery

The policies that come with the package, each with a film of one test episode, the returns and costs of all test episodes, and
what these prove. Five seeds each, {EPISODES} episodes of every seed, from starts that neither training nor any choice has seen
(`saute certify pretrained:NAME --episodes {EPISODES} --seed {SEED}`). Deterministic policies; the return is the task's own.
`python scripts/gallery.py` makes this page.

Try one without training: `saute watch pretrained:pendulum-saute-trpo`. What the bounds mean: [certificates](certificates.md).
"""


def main(chosen: list[str]) -> int:
    places = {name: PAGE.parent / "gallery" / name for name in names()}
    for name in chosen or places:
        renew(name, places[name])
    there = {name: place for name, place in places.items() if (place / "certificate.json").exists()}
    PAGE.write_text(INTRODUCTION + "".join(entry(name, place) for name, place in there.items()))
    return 0


def renew(name: str, place: pathlib.Path) -> None:
    """Test the policies of a run, film one of them, and keep small pictures and the certificate."""
    place.mkdir(parents=True, exist_ok=True)
    run = f"pretrained:{name}"
    with tempfile.TemporaryDirectory() as folder:
        made = pathlib.Path(folder)
        done = saute(["certify", run, "--episodes", str(EPISODES), "--seed", str(SEED), "--out", folder])
        done |= saute(["watch", run, "--mode", "test", "--size", str(HEIGHT), "--out", str(made / "film.gif")])
        if done:
            raise SystemExit(done)
        (place / "certificate.json").write_bytes((made / "certificate.json").read_bytes())
        with Image.open(made / "certificate-box.png") as picture:
            picture.convert("RGB").quantize(COLOURS).save(place / "box.png", optimize=True)
        shorten(made / "film.gif", place / "film.gif")


def shorten(film: pathlib.Path, out: pathlib.Path) -> None:
    """One frame of every few, in few colours and a little faster than it was."""
    with Image.open(film) as whole:
        delay = int(whole.info["duration"])
        frames = [frame.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE) for frame in ImageSequence.Iterator(whole)]
    kept = frames[::EVERY]
    kept[0].save(out, save_all=True, append_images=kept[1:], duration=max(20, delay * EVERY // 2), loop=0, optimize=True)


def entry(name: str, place: pathlib.Path) -> str:
    """The part of the page about a policy."""
    content: dict[str, Any] = read_sealed(place / "certificate.json")
    config, origin, pooled = content["config"], content["provenance"], content["pooled"]
    method, worst = f"{config['method']} {config['algo'].upper()}", max(seed["worst"] for seed in content["seeds"])
    middle, low, high = (f"{number:.2f}" for number in pooled["task_return"].values())
    return f"""
## {name}

**{content["statement"]}.** Task `{config["env"]}`, {method}, budget {config["budget"]:g}. Mean cost {pooled["mean"]:.2f}, worst
{worst:.2f}; interquartile mean of the returns {middle} [{low}, {high}]. Tested on {origin["date"][:10]} with saute
{origin["saute"]}; policy `{origin["policy"][:16]}…`, [certificate](gallery/{name}/certificate.json).

<div class="gallery" markdown>
![A test episode of {name}](gallery/{name}/film.gif)
![Returns and costs of {name}](gallery/{name}/box.png)
</div>
"""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
