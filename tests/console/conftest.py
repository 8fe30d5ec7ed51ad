"""Browsers and a daemon for the tests of the console. Checks of every page that a test leaves."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemon import Daemon
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

#: Elements that no page of the console has, and that a text of an agent would make if it became markup.
FOREIGN = (
    "img, iframe, object, embed, video, audio, [onerror], [onclick], [onload], a[href^='javascript' i], "
    "style:not(.xterm style)"
)

SignIn = Callable[..., Page]
# Milliseconds: that of a busy machine.
expect.set_options(timeout=30_000)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Its sandbox needs user namespaces, which root in a container lacks.
        program = os.environ["COFFERDAM_TEST_CHROMIUM"]
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    started = Daemon()
    yield started
    started.remove()


def assert_harmless(page: Page) -> None:
    """No script but ours has run on the page, and no text has become an element."""
    assert page.evaluate("window.pwned") is None
    assert page.locator(FOREIGN).count() == 0, page.locator(FOREIGN).first.evaluate("element => element.outerHTML")


@pytest.fixture
def sign_in(browser: Browser, daemon: Daemon) -> Iterator[SignIn]:
    """Opens a browser of its own for a user of this host, by a one-time link."""
    contexts: list[BrowserContext] = []
    problems: list[str] = []

    def enter(uid: int = 0, scheme: str = "light", size: tuple[int, int] = (1280, 800)) -> Page:
        width, height = size
        viewport = {"width": width, "height": height}
        context = browser.new_context(color_scheme=scheme, viewport=viewport, accept_downloads=True)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: "Security Policy" in message.text and problems.append(message.text))
        page.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
        page.goto(daemon.link(uid))
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/approvals")
        return page

    yield enter
    for context in contexts:
        for page in context.pages:
            if page.url.startswith("http"):
                assert_harmless(page)
        context.close()
    assert not problems


@pytest.fixture(scope="session")
def shots() -> Path:
    directory = Path(os.environ["COFFERDAM_TEST_SHOTS"])
    directory.mkdir(parents=True, exist_ok=True)
    return directory
