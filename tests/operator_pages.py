"""The operator's page in tests: a client that is logged in, and commands given on the page."""

from contextlib import contextmanager

import httpx

from truthfl.page.access import CSRF_HEADER


def give(page, name, why, **choices):
    """Fill in the dialog of a command, look at its second step, and sign."""
    page.click(f"#{name}" if name in ("approve", "disapprove") else f"#do-{name}")
    for field, value in choices.items():
        fill = page.fill if field == "minutes" else page.select_option
        fill(f"#act-{field}", value)
    page.fill("#act-why", why)
    page.click("#act-go")
    page.wait_for_selector("#act-confirm >> text=stands in the ledger for good")
    page.evaluate("document.getElementById('notice').textContent = ''")  # of an earlier command
    page.click("#act-go")
    page.wait_for_selector("#notice >> text=Signed")


@contextmanager
def client_of(page):
    """Somebody who came in by the whole address, with the page's secret for changes."""
    address = page.url.split("/?")[0]
    with httpx.Client(base_url=address, trust_env=False) as client:
        assert client.get(page.url).status_code == 303
        told = client.get("/api/status").json()
        client.headers.update({"origin": address[: address.index("/", 8)], CSRF_HEADER: told["csrf"]})
        yield client
