// Documents that arrive while a page is open, and a banner that announces them; with the state of job and connection.

import { showConnection, watchServer } from "./connection.js";
import { byId, make } from "./dom.js";
import { showJob } from "./job_clock.js";
import { parts, text } from "./text.js";

const DOCUMENTS = ["offer", "answer", "receipt", "news", "trouble"];

// page: name of the current page; documents that it shows itself are not announced
// onChange: called with the new and the previous summary of documents
// known: summary of documents when the page was loaded, if it has one
export function watchDocuments(page, onChange = () => {}, known = null) {
  let first = null;
  let previous = null;
  function take(current) {
    first ??= current;
    announce(page, current, first);
    showConnection(current.connection, current.job !== null && !["paid", "over"].includes(current.job.stage));
    showJob(current.job);
    if (previous !== null && DOCUMENTS.some((name) => current[name] !== previous[name])) onChange(current, previous);
    previous = current;
  }
  const ask = watchServer("api/documents", take);
  if (known === null) ask();
  else take(known);
}

function announce(page, current, first) {
  if (page !== "receipt" && current.receipt && current.receipt !== first.receipt) showBanner(text("news.receipt"), "receipt");
  else if (current.news) showBanner(current.news, "", newsWords(current));
  else if (page !== "offer" && current.offer && !current.answer) showBanner(text("news.offer"), "offer");
  else showBanner("", "");
}

// The server's sentence in the page's language, or as it is if that has no such message.
function newsWords({ news, news_message: form }) {
  return form ? parts(form) : [make("span", { lang: "en" }, news)];
}

// message: by which it is known whether the banner is shown already; words: texts and elements
function showBanner(message, href, words = [message]) {
  const banner = byId("banner");
  if ((banner.dataset.message ?? "") === message) return;
  banner.dataset.message = message;
  banner.hidden = message === "";
  banner.replaceChildren(...words, " ", href === "" ? "" : make("a", { href }, text("news.look")));
}
