"""The report in a real browser: Debian's Chromium (apt-get install chromium chromium-driver), driven by Selenium."""

from __future__ import annotations

import csv
import json
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from report_toys import NASTY, made_up, reported, two_budgets

from saute.cli.live import HOST, Live, serving
from saute.evidence.web import page

pytest.importorskip("bokeh", reason="the charts of reports need it: pip install 'saute[report]'")
webdriver = pytest.importorskip("selenium.webdriver", reason="it drives the browser: pip install selenium")
FOUND = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
pytestmark = pytest.mark.skipif(
    not all(FOUND.values()), reason="there is no browser to test with: apt-get install chromium chromium-driver"
)
QUIET = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --window-size=1280,900"
)
"""A browser without a screen, which asks for nothing on its own."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = FOUND["chromium"]
    for one in [*QUIET.split(), f"--user-data-dir={tmp_path_factory.mktemp('browser')}"]:
        options.add_argument(one)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(FOUND["chromedriver"]))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser: Any, tmp_path: pathlib.Path) -> Any:
    """The page of two runs, one of them with a hostile name; at the end nothing has gone wrong, and nothing was asked for."""
    file = tmp_path / "report.html"
    file.write_text(
        page(reported(made_up([1.0, 4.0, 6.0, 11.0], [False] * 3 + [True]), made_up([3.0] * 4, [False] * 4, NASTY)))
    )
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(file.as_uri())
    until(lambda: drawn(browser) == 15, "the charts are drawn")
    yield browser
    assert [one["message"] for one in browser.get_log("browser") if one["level"] in ("WARNING", "SEVERE")] == []
    events = [json.loads(one["message"])["message"] for one in browser.get_log("performance")]
    sent = [one["params"] for one in events if one["method"] == "Network.requestWillBeSent"]
    asked = [one["request"]["url"] for one in sent if one["documentURL"] == file.as_uri()]  # not those of the browser's own tab
    assert file.as_uri() in asked and {one.partition(":")[0] for one in asked} <= {"file", "data", "blob"}


def until(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def drawn(browser: Any) -> int:
    return browser.execute_script("return Bokeh.documents.flatMap((one) => one.roots()).length")


def text(browser: Any, selector: str) -> str:
    """In one question, since a live page may replace its parts between two."""
    return browser.execute_script("return document.querySelector(arguments[0])?.textContent ?? ''", selector)


def test_it_opens_and_names_of_strangers_are_text(opened: Any) -> None:
    assert opened.title.startswith("Safety report: a, </script>")
    assert NASTY in text(opened, "h1") and NASTY in text(opened, "#certificates")
    assert not opened.find_elements("css selector", "img[src=x], main script")
    assert "1 of 4 episodes violated" in text(opened, "#verdict .violated")


def test_the_slider_moves_numbers_and_pictures_by_keyboard(opened: Any) -> None:
    keys = webdriver.Keys
    slider = opened.find_element("css selector", "#budget")
    picture = opened.find_elements("css selector", "#budgets .chart")[3]
    numbers, before = text(opened, "#numbers"), picture.screenshot_as_png
    assert slider.get_attribute("aria-valuetext") == "budget 10" and "violations1 of 4" in numbers
    for _ in range(40):
        opened.switch_to.active_element.send_keys(keys.TAB)
        if opened.switch_to.active_element == slider:
            break
    slider.send_keys(keys.ARROW_LEFT)
    assert text(opened, ".slider output") == "budget 5" == slider.get_attribute("aria-valuetext")
    assert "violations2 of 4" in text(opened, "#numbers") and "No episode of the training" in text(opened, "#budgets .note")
    until(lambda: picture.screenshot_as_png != before, "the picture changes")
    slider.send_keys(keys.HOME)
    assert text(opened, ".slider output") == "budget 2" and "violations3 of 4" in text(opened, "#numbers")


def test_tables_are_downloaded_by_keyboard_and_names_are_no_formulas(opened: Any, tmp_path: pathlib.Path) -> None:
    opened.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    for kind in ("CSV", "JSON"):
        opened.find_element("css selector", f"button[aria-label='Fresh episodes as {kind}']").send_keys(webdriver.Keys.ENTER)
    files = [tmp_path / "evaluation.csv", tmp_path / "evaluation.json"]
    until(lambda: all(file.is_file() for file in files), "both files are there")
    rows = list(csv.DictReader(files[0].open(newline="", encoding="utf-8")))
    records = json.loads(files[1].read_text(encoding="utf-8"))
    assert [row["run"] for row in rows] == [record["run"] for record in records] == ["a", "a", NASTY, NASTY]
    assert [float(row["bound"]) for row in rows] == [record["bound"] for record in records]
    assert opened.execute_script("return ['=1+1', '-a', 'a,\"b'].map(cell)") == ["'=1+1", "'-a", '"a,""b"']


@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_the_screen_and_turns_dark_but_not_in_print(opened: Any, width: int) -> None:
    opened.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    )
    style = """
        const style = (selector) => getComputedStyle(document.querySelector(selector));
        return [style("body").backgroundColor, style(".chart > div").filter]"""
    seen = {}
    for media in ("screen", "print"):
        for scheme in ("light", "dark"):
            wanted = {"media": media, "features": [{"name": "prefers-color-scheme", "value": scheme}]}
            opened.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)
            seen[media, scheme] = opened.execute_script(style)
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    until(lambda: opened.execute_script("return document.documentElement.scrollWidth") <= width, "nothing is cut off")
    opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    light = ["rgb(255, 255, 255)", "none"]
    assert seen["screen", "light"] == seen["print", "light"] == seen["print", "dark"] == light
    assert seen["screen", "dark"][0] == "rgb(20, 23, 28)" and seen["screen", "dark"][1].startswith("invert(1)")


def test_several_budgets_are_moved_together(browser: Any, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(reported(two_budgets())))
    browser.get_log("browser")
    browser.get(file.as_uri())
    until(lambda: drawn(browser) == 13, "the charts are drawn")
    assert text(browser, ".slider output") == "budget 10 5"
    browser.find_element("css selector", "#budget").send_keys(webdriver.Keys.ARROW_LEFT)
    assert text(browser, ".slider output") == "budget 5 2.5" and "violations2 of 4" in text(browser, "#numbers")
    assert [one for one in browser.get_log("browser") if one["level"] == "SEVERE"] == []


def test_the_live_page_updates_itself(browser: Any) -> None:
    shown = {"status": "epoch 1"}

    def now() -> dict[str, Any]:
        told = reported(made_up([1.0], [False]))
        return {"title": told["title"], "subtitle": "", "curves": told["curves"], "runs": [{"name": NASTY, **shown}]}

    live = Live(lambda: shown["status"][-1], now, lambda: reported(made_up([20.0], [True])))
    with serving(live, 0) as server:
        browser.get_log("browser")
        browser.get(f"http://{HOST}:{server.server_port}/")
        until(lambda: drawn(browser) >= 4, "the curves are drawn")
        assert text(browser, ".status") in ("epoch 1", "epoch 2")
        shown["status"] = "epoch 2"
        until(lambda: text(browser, ".status") == "epoch 2", "the status moves")
        until(lambda: "1 of 1 episodes violated" in text(browser, "#verdict"), "what was tested is shown")
        assert "policies of epoch 3" in text(browser, "#verdict")
        assert [one for one in browser.get_log("browser") if one["level"] == "SEVERE"] == []
    until(lambda: text(browser, ".status").startswith("The server has ended"), "the end is told")
