# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Chromium without a window, and what is wrong with the page that it shows."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import typing as t
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

Scheme = t.Literal["light", "dark"]
LEAST_CONTRAST = 4.5
"""Of text to what is behind it: WCAG 2, level AA."""
SECONDS = 60
"""For one command to the browser, however busy the machine is."""

# The width of a word is compared with an equal share of the table, because a column can always be that wide.
# In a narrow window the cells of a row stand one below the other.
BROKEN_WORDS = """
const found = [];
for (const cell of [...document.querySelectorAll('td:not(.lane),th')].filter((cell) => cell.checkVisibility())) {
  const style = getComputedStyle(cell), row = cell.parentElement, table = cell.closest('table');
  const inner = parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
  const column = table.clientWidth / (style.display === 'table-cell' ? row.cells.length : 1);
  const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (texts.nextNode()) {
    range.selectNodeContents(texts.currentNode);
    if (range.getClientRects().length < 2) continue;
    for (const word of texts.currentNode.data.matchAll(/[\\p{L}\\p{N}_.]+/gu)) {
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      const parts = [...range.getClientRects()];
      const width = parts.reduce((sum, part) => sum + part.width, 0);
      if (parts.length > 1 && width <= column - inner) found.push(word[0]);
    }
  }
}
return found;
"""

TEXTS = """
const found = new Map();
const behind = (element) => {
  for (; element; element = element.parentElement) {
    const color = getComputedStyle(element).backgroundColor;
    if (!color.endsWith(', 0)')) return color;
  }
  return 'rgb(255, 255, 255)';
};
const note = (color, element, text) => {
  const key = color + behind(element);
  if (!found.has(key)) found.set(key, [color, behind(element), text.trim().slice(0, 40)]);
};
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const element = texts.currentNode.parentElement;
  if (!texts.currentNode.data.trim() || element.closest('svg title, script') || !element.checkVisibility()) continue;
  const style = getComputedStyle(element);
  note(element.closest('svg') ? style.fill : style.color, element, texts.currentNode.data);
}
for (const input of document.querySelectorAll('input'))
  note(getComputedStyle(input, '::placeholder').color, input, input.placeholder);
return [...found.values()];
"""

HIDDEN_SECTIONS = """
return [...document.querySelectorAll('section')].filter((section) => {
  const box = section.getBoundingClientRect(), title = section.querySelector('h2').textContent;
  return !section.checkVisibility({visibilityProperty: true, opacityProperty: true})
    || box.height < 20 || box.left < 0 || box.right > innerWidth || section.textContent.trim() === title;
}).map((section) => section.querySelector('h2').textContent);
"""


def contrast(one: str, other: str) -> float:
    """How different two opaque colors are, ``rgb(…)`` as a browser computes them, by WCAG 2."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: str) -> float:
    parts = re.fullmatch(r"rgb\((\d+), (\d+), (\d+)\)", color)
    assert parts, f"{color} is no opaque color"
    shares = [int(part) / 255 for part in parts.groups()]
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


class Browser:
    """One page at a time, of a file."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        self.address = ""

    def open(self, path: Path, width: int, scheme: Scheme) -> None:
        """Show a page in a window so wide, for somebody who prefers this scheme."""
        self.address = path.resolve(strict=True).as_uri()
        for kind in ("browser", "performance"):
            self._log(kind)
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        self.driver.get(self.address)

    def faults(self) -> dict[str, list[str]]:
        """What is wrong with the page as it is shown, by kind; empty where nothing is."""
        found = {
            "wider than the window": self._too_wide(),
            "words broken": self.ask(BROKEN_WORDS),
            "hard to read": self._hard_to_read(),
            "sections hidden": self.ask(HIDDEN_SECTIONS),
            "console": [entry["message"] for entry in self._log("browser")],
            # The browser has icons of its own.
            "loaded": [
                url for url in self._requested() if url != self.address and not url.startswith(("chrome:", "data:"))
            ],
        }
        return {kind: told for kind, told in found.items() if told}

    def ask(self, script: str, *arguments: t.Any) -> t.Any:
        """What a script returns."""
        return self.driver.execute_script(script, *arguments)

    def _too_wide(self) -> list[str]:
        needed, there = self.ask("const page = document.documentElement; return [page.scrollWidth, page.clientWidth]")
        return [f"{needed} px in {there} px"] if needed > there else []

    def _hard_to_read(self) -> list[str]:
        texts = [(contrast(color, behind), color, behind, text) for color, behind, text in self.ask(TEXTS)]
        return [
            f"{ratio:.2f}: {text!r}, {one} on {other}" for ratio, one, other, text in texts if ratio < LEAST_CONTRAST
        ]

    def _requested(self) -> list[str]:
        messages = [json.loads(entry["message"])["message"] for entry in self._log("performance")]
        return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]

    def _log(self, kind: str) -> list[dict[str, t.Any]]:
        """What was logged since the last call."""
        entries: list[dict[str, t.Any]] = self.driver.get_log(kind)
        return entries


@contextlib.contextmanager
def started(folder: Path) -> t.Iterator[Browser]:
    """A browser that keeps its files in a folder and asks no server for updates."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    # Without a sandbox and shared memory it runs as root and in containers; it shows our own pages only.
    for word in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", f"user-data-dir={folder}"):
        options.add_argument(f"--{word}")
    for word in ("disable-background-networking", "disable-component-update", "no-first-run"):
        options.add_argument(f"--{word}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    socket.setdefaulttimeout(1.5 * SECONDS)
    # As the path of the driver is given, selenium does not download one.
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    try:
        driver.set_page_load_timeout(SECONDS)
        driver.set_script_timeout(SECONDS)
        yield Browser(driver)
    finally:
        driver.quit()
