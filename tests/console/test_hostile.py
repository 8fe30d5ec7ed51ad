"""Markup, control characters and marks of direction through each field that an agent controls."""

from conftest import SignIn, assert_harmless
from daemon import EXEC_AWAITS, Daemon
from playwright.sync_api import Page, expect

HOSTILE = '<img src=x onerror="window.pwned=1">\'&\x1b[2J\u202e\u200b<script>window.pwned=1</script>'
#: As the console shows the mark of direction.
MARKED = "<U+202E>"
NAME = HOSTILE.replace("/", "|")


def visit(page: Page, path: str) -> None:
    origin = "/".join(page.url.split("/")[:3])
    page.goto(origin + path)
    expect(page.locator("h1")).to_have_count(1)
    # One that is opened is no longer among them.
    while (closed := page.locator("details:not([open]) > summary")).count():
        closed.first.click()
    assert_harmless(page)
    text = page.locator("body").text_content() or ""
    assert not {"\x1b", "\u202e", "\u200b"} & set(text), path


def test_texts_of_an_agent_stay_texts_everywhere(daemon: Daemon, sign_in: SignIn) -> None:
    # A label has no control characters.
    run = daemon.run("review", "--label", "note=" + HOSTILE.replace("\x1b", ""))
    directory = daemon.directory(run)
    (directory / NAME).write_text(f"{HOSTILE}\n")
    (directory / "a.txt").write_text(f"{HOSTILE}\n")
    read = daemon.json("call", "exec", run, "--", "cat", "a.txt")
    daemon.run_coffer("call", "read", run, f"missing {HOSTILE}", codes=tuple(range(1, 256)))
    page = sign_in()

    # A file, whose name and content are hostile, waits; then a command.
    def write() -> str:
        return daemon.ask(run, NAME, f"{HOSTILE} more\n")

    def command() -> str:
        return daemon.json("call", "exec", run, "--", "touch", HOSTILE, codes=(EXEC_AWAITS,))["approvalId"]

    for ask in (write, command):
        asked = ask()
        visit(page, f"/approvals/{asked}")
        assert MARKED in (page.locator("main").text_content() or "")
        visit(page, "/approvals")
        daemon.coffer("approval", "deny", asked, "--comment", HOSTILE)
        visit(page, f"/approvals/{asked}")
        assert MARKED in (page.locator("main").text_content() or "")
    paths = ["/overview", "/approvals/history", "/runs", f"/runs/{run}", f"/calls?run={run}", f"/audit?run={run}", "/alerts"]
    for path in [*paths, f"/calls/{read['callId']}"]:
        visit(page, path)
    visit(page, f"/audit?run={run}&kind=approval_requested")
    records = page.locator("td a[href^='/audit/']").evaluate_all("all => all.map(a => a.getAttribute('href'))")
    assert len(records) == 2
    for path in records:
        visit(page, path)
    visit(page, f"/runs/{run}/files")
    assert MARKED in (page.locator("main").text_content() or ""), "the name of a file"
    page.locator("td a", has_text="img src").first.click()
    assert_harmless(page)
    expect(page.locator("pre")).to_contain_text("<script>window.pwned=1</script>")


def test_a_download_is_an_attachment_with_a_plain_name(daemon: Daemon, sign_in: SignIn) -> None:
    run = daemon.run()
    content = b"<script>window.pwned=1</script>\0\xff"
    (daemon.directory(run) / "\u202e<b>gnp.html").write_bytes(content)
    page = sign_in()
    visit(page, f"/runs/{run}/files")
    with page.expect_download() as started:
        page.locator("tr", has_text="gnp.html").get_by_role("link", name="Download").click()
    assert started.value.suggested_filename == "__b_gnp.html"
    assert started.value.path().read_bytes() == content


def test_other_sites_get_nothing(daemon: Daemon, sign_in: SignIn) -> None:
    run = daemon.run()
    page = sign_in()
    origin = "/".join(page.url.split("/")[:3])
    # The library's own requests do not know the name.
    address = f"http://127.0.0.1:{daemon.port}"
    cookies = "; ".join(f"{cookie['name']}={cookie['value']}" for cookie in page.context.cookies())
    own = {"host": origin.removeprefix("http://"), "cookie": cookies}
    # A form of another origin, with the cookie of the session at hand.
    answer = page.request.post(
        f"{address}/runs/{run}/pause", form={"csrf": "x"}, headers={**own, "origin": "https://evil.example.org"}
    )
    assert answer.status == 403
    answer = page.request.post(f"{address}/runs/{run}/pause", form={"csrf": "x"}, headers={**own, "origin": origin})
    assert answer.status == 403, "a form without the secret of its session"
    assert daemon.json("run", "show", run)["run"]["state"] == "READY"
    answer = page.request.get(f"{address}/runs", headers={**own, "host": "evil.example.org"})
    assert answer.status == 421
    assert page.request.get(f"{address}/runs/../../etc/passwd", headers=own).status == 404
