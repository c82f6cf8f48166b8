"""Shared parts of the page: keys, and answers that come too late."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.service.page.conftest import OpenPlace, Served

pytestmark = pytest.mark.slow

WaitUntil = Callable[[Callable[[], bool]], None]

# Puts a component in the place of what is shown, with the modules that it is made of.
MOUNT = """async (body) => {
  const modules = await import(document.querySelector('script[type=module]').src);
  const names = ['lib_html', 'lib_api', 'lib_jobs', 'parts_dialog', 'parts_field', 'parts_labels',
    'parts_notice', 'parts_shortcuts', 'parts_tabs', 'lib_pictures', 'parts_picture'];
  const all = Object.assign({}, ...names.map((one) => modules[`$${one}`]));
  window.all = all;
  const place = document.createElement('div');
  const parts = body(all);
  document.querySelector('main').replaceChildren(place);
  // What a component does after it was drawn is done too.
  await new Promise((done) => {
    const Drawn = () => { all.useEffect(done, []); };
    all.render(all.h(all.Fragment, null, all.h(parts), all.h(Drawn)), place);
  });
}"""


def mount(page: Page, body: str) -> None:
    """Show a component: `body` is a function of the modules that gives it."""
    page.evaluate(f"() => ({MOUNT})({body})")


@pytest.fixture
def page(demo: Served, open_place: OpenPlace) -> Page:
    return open_place(demo.url, "key", expects=("404", "ERR_FAILED"))


def test_keys_are_silent_where_somebody_types_and_in_dialogs(page: Page) -> None:
    mount(
        page,
        """({html, useState, useShortcuts, Dialog}) => () => {
          const [n, set] = useState(0), [isOpen, open] = useState(false);
          useShortcuts({n: () => set((old) => old + 1), ' ': () => set((old) => old + 10)});
          return html`<h1>${n}</h1><input aria-label="name" />
            <button onClick=${() => open(true)}>open</button>
            ${isOpen && html`<${Dialog} title="Ask" onClose=${() => open(false)}><p>text</p><//>`}`;
        }""",
    )
    said = page.locator("main h1")
    page.keyboard.press("n")
    page.keyboard.press("Shift+N")
    expect(said).to_have_text("2")
    page.keyboard.press("Control+n")
    page.get_by_label("name").press("n")
    expect(said).to_have_text("2")
    # A button is pressed by the space bar, and nothing else is.
    page.get_by_role("button", name="open").press(" ")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("n")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="open")).to_be_focused()
    expect(said).to_have_text("2")


def test_an_answer_that_comes_too_late_is_dropped_and_old_truth_is_not_shown_for_new(
    page: Page, wait_until: WaitUntil
) -> None:
    mount(
        page,
        """({html, useState, useCall}) => () => {
          const [name, set] = useState('first');
          window.name_ = set;
          const found = useCall(() => new Promise((done) => { (window.done ??= {})[name] = done; }), [name]);
          return html`<h1>${name}: ${found.value ?? (found.isLoading ? 'loading' : 'nothing')}</h1>`;
        }""",
    )
    said = page.locator("main h1")
    wait_until(lambda: page.evaluate("'first' in (window.done ?? {})"))
    page.evaluate("window.name_('second')")
    wait_until(lambda: page.evaluate("'second' in window.done"))
    page.evaluate("window.done.first('late')")
    expect(said).to_have_text("second: loading")
    page.evaluate("window.done.second('here')")
    expect(said).to_have_text("second: here")
    page.evaluate("window.name_('third')")
    expect(said).to_have_text("third: loading")
