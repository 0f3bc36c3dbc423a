// Polling for documents that arrive while a page is open, and a banner that announces them.

import { getJson } from "./api.js";
import { byId, make } from "./dom.js";

const INTERVAL_MS = 2000;

// page: name of the current page; documents that it shows itself are not announced
// onChange: called with the new and the previous summary of documents
// known: summary of documents when the page was loaded, if it has one
export function watchDocuments(page, onChange = () => {}, known = null) {
  let first = known;
  let previous = known;
  let timer = 0;
  async function poll() {
    clearTimeout(timer);
    timer = setTimeout(poll, INTERVAL_MS);
    if (document.visibilityState !== "visible") return;
    try {
      const current = await getJson("api/documents");
      first ??= current;
      announce(page, current, first);
      if (previous !== null && JSON.stringify(current) !== JSON.stringify(previous)) onChange(current, previous);
      previous = current;
    } catch {
      // the server does not respond; other requests show an error message
    }
  }
  if (known === null) poll();
  else {
    announce(page, known, first);
    timer = setTimeout(poll, INTERVAL_MS);
  }
  document.addEventListener("visibilitychange", poll);
}

function announce(page, current, first) {
  if (page !== "receipt" && current.receipt && current.receipt !== first.receipt) showBanner("Your receipt has come.", "receipt");
  else if (current.news) showBanner(current.news, "");
  else if (page !== "offer" && current.offer && !current.answer) showBanner("There is an offer for you to answer.", "offer");
  else showBanner("", "");
}

function showBanner(message, href) {
  const banner = byId("banner");
  if (banner.dataset.message === message) return;
  banner.dataset.message = message;
  banner.hidden = message === "";
  banner.replaceChildren(`${message} `, href === "" ? "" : make("a", { href }, "Look at it"));
}
