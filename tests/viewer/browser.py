"""A headless Chromium with a page of the viewer in it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
DESKTOP = (1366, 768)
PHONE = (390, 844)


class Page:
    """One browser for all tests of a module; `open` leaves nothing of the previous page."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path, size: tuple[int, int] = DESKTOP, theme: str = "light", address: str = "") -> None:
        """Open a file, and wait until all of it is decoded and drawn."""
        self.resize(size)
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.driver.get("about:blank")
        self.logs()
        self.driver.get(path.as_uri() + address)
        self.wait("'ready' in document.documentElement.dataset")

    def resize(self, size: tuple[int, int]) -> None:
        """Set the width and height of the window's content."""
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def wait(self, condition: str, seconds: float = 10.0) -> None:
        """Wait until a condition in JavaScript holds."""
        end = time.monotonic() + seconds
        while not self.run(f"return Boolean({condition})"):
            assert time.monotonic() < end, f"not within {seconds} s: {condition}; {self.logs('browser')}"
            time.sleep(0.02)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run JavaScript in the page."""
        return self.driver.execute_script(script, *arguments)

    def press(self, *keys: str) -> None:
        """Press keys, "Shift+" first if need be, and wait until the page has drawn."""
        for key in keys:
            name = key.removeprefix("Shift+")
            script = (
                "(document.activeElement ?? document.body).dispatchEvent(new KeyboardEvent('keydown', arguments[0]))"
            )
            event = {"key": name, "shiftKey": name != key, "bubbles": True, "cancelable": True}
            self.run(script, event)
        self.draw()

    def draw(self) -> None:
        """Wait for two frames."""
        self.driver.execute_async_script(
            "const [done] = arguments; requestAnimationFrame(() => requestAnimationFrame(done))"
        )

    def click(self, selector: str) -> None:
        """Click the first element that a selector finds."""
        self.driver.find_element("css selector", selector).click()
        self.draw()

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a list."""
        script = """
            const list = document.querySelector(arguments[0]);
            list.value = arguments[1];
            list.dispatchEvent(new Event("change"));
        """
        self.run(script, selector, value)
        self.draw()

    def type(self, selector: str, text: str) -> None:
        """Replace the text of a field."""
        field = self.driver.find_element("css selector", selector)
        field.clear()
        field.send_keys(text)

    def text(self, selector: str) -> str:
        """Text of the first element that a selector finds."""
        return str(self.run("return document.querySelector(arguments[0]).textContent", selector))

    def texts(self, selector: str) -> list[str]:
        """Texts of all visible elements that a selector finds."""
        script = """
            const visible = [...document.querySelectorAll(arguments[0])].filter((node) => node.getClientRects().length);
            return visible.map((node) => node.textContent);
        """
        return list(self.run(script, selector))

    @property
    def place(self) -> str:
        """The position as the page writes it."""
        return self.text(".place")

    def logs(self, kind: str = "all") -> list[Any]:
        """Messages of the console, or requests, since this was last asked."""
        console = [entry["message"] for entry in self.driver.get_log("browser")]
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        self.requests = [
            event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"
        ]
        return console if kind in ("all", "browser") else self.requests


@contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """Start Chromium, or skip the tests where it is missing."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed, which drives the browser")
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        pytest.skip("Chromium is not installed: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for flag in (*FLAGS, f"--user-data-dir={folder}", f"--window-size={DESKTOP[0]},{DESKTOP[1]}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(programs[1]))
    try:
        yield Page(driver)
    finally:
        driver.quit()
