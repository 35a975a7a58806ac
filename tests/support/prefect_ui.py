"""Prefect's UI, operated as a person does: by the words on the page, and by waiting for what is to be seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE_S = 150.0  # longer than the 60 s for which a server on SQLite may wait for a lock
EMPTY_S = 40.0  # seconds for which a page may be empty before it is opened again

CONTROL = """self::input or self::textarea or self::select or @role='textbox' or @role='combobox'
    or starts-with(@aria-label, 'Select ')"""


@dataclass
class Ui:
    """The UI in a browser. V2, Prefect's default, has its pages below `/v2`; V1 at the root."""

    driver: Any
    address: str
    pictures: Path

    def __post_init__(self) -> None:
        self._number = count(1)

    def open(self, path: str) -> None:
        """Open a page; again where it stays empty, as it does if one of its scripts did not load."""
        for _ in range(3):
            self.driver.get(f"{self.address}/{path}")
            if self.wait(lambda: self.text.strip(), path, EMPTY_S, needed=False):
                return

    def leave(self) -> None:
        """Show nothing while something is waited for elsewhere: the page of a run that goes on takes CPU."""
        self.driver.get("about:blank")

    # ------------------------------------------------------------------ what is seen

    @property
    def text(self) -> str:
        return str(self.driver.execute_script("return document.body.innerText"))

    def find(self, path: str) -> list[Any]:
        """The elements on this XPath that are displayed."""
        visible = "return arguments[0].checkVisibility()"
        return [each for each in self.driver.find_elements("xpath", path) if self.driver.execute_script(visible, each)]

    def wait(
        self, condition: Callable[[], T], what: str, patience_s: float = PATIENCE_S, *, needed: bool = True
    ) -> T | None:
        """What the condition returns, as soon as that is true; if it never is, a picture and the page's text."""
        from selenium.common.exceptions import ElementClickInterceptedException, StaleElementReferenceException

        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            try:
                if found := condition():
                    return found
            except (StaleElementReferenceException, ElementClickInterceptedException):
                pass  # the page has just drawn it anew, or a menu above it is still closing
            time.sleep(0.3)  # a look at the page takes CPU of its own
        if not needed:
            return None
        self.picture("never-seen")
        raise AssertionError(f"never seen: {what}\n{self.driver.current_url}\n{self.text[-3000:]}")

    def see(self, *texts: str, patience_s: float = PATIENCE_S) -> None:
        for text in texts:
            self.wait(lambda text=text: text in self.text, text, patience_s)  # type: ignore[misc]

    def picture(self, name: str) -> None:
        self.driver.save_screenshot(str(self.pictures / f"{next(self._number):02}-{name}.png"))

    # ------------------------------------------------------------------ what is done

    def press(self, words: str, *, on: str = "button a tab menuitem option") -> None:
        """Click what bears exactly these words; of several the last, since dialogs and menus come after the page."""
        kinds = "true()" if on == "*" else " or ".join(f"self::{kind} or @role='{kind}'" for kind in on.split())
        self.click(f"//*[{kinds}][normalize-space()='{words}']", -1, words)

    def menu(self, words: str, *, which: int = 0) -> None:
        """Click an entry of one of the page's menus of three dots."""
        self.click("//button[normalize-space()='Open menu']", which, "a menu")
        self.press(words, on="menuitem")

    def field(self, label: str) -> Any:
        """The control below a label, and below no other: while a form is drawn, the next label's may be there first."""
        own = self._label(label).removeprefix("//label")
        path = f"//label{own}/following::*[{CONTROL}][1][preceding::label[1]{own}]"
        return self.wait(lambda: self.find(path), f"the field {label}")[-1]

    def fill(self, label: str, value: str, *, tab: str = "") -> None:
        """Replace what a field holds, until it holds the new value: forms set their defaults after they are drawn.

        With `tab`, the tab of these words above the field is chosen before; a form that is drawn anew shows its first.
        """
        from selenium.webdriver.common.keys import Keys

        path = f"{self._label(label)}/following::*[@role='tab'][normalize-space()='{tab}'][1]"

        def done() -> bool:
            if tab and (found := self.find(path)) and found[0].get_attribute("aria-selected") != "true":
                found[0].click()
            control = self.field(label)
            # Not clicked: while the form is drawn, another control may stand there, and open a list above the rest.
            self.driver.execute_script("arguments[0].focus()", control)
            control.send_keys(Keys.CONTROL, "a")
            self.driver.execute_cdp_cmd("Input.insertText", {"text": value})  # as pasted: no editor closes our brackets
            return value == self.driver.execute_script("return arguments[0].value ?? arguments[0].innerText", control)

        self.wait(done, f"{value} in the field {label}")

    def choose(self, label: str, option: str) -> None:
        from selenium.webdriver.support.ui import Select

        control = self.field(label)
        if control.tag_name == "select":
            Select(control).select_by_visible_text(option)
        else:
            control.click()
            self.press(option, on="option")
            self.wait(lambda: not self.find("//*[@role='option']"), "the end of the list")  # it takes the next click

    def _label(self, words: str) -> str:
        return f"//label[normalize-space()='{words}' or normalize-space()='{words} (Optional)']"

    def click(self, path: str, which: int, what: str) -> None:
        """Click one of what is on this XPath; again, where the page was drawn anew in between."""

        def done() -> bool:
            found = self.find(path)
            if not found:
                return False
            self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", found[which])
            found[which].click()
            return True

        self.wait(done, what)
