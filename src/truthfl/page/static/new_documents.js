// Documents that arrive while a page is open, and a banner that announces them; with the state of job and connection.

import { showConnection, watchServer } from "./connection.js";
import { byId, make } from "./dom.js";
import { showJob } from "./job_clock.js";
import { language } from "./strings.js";
import { hasText, text } from "./text.js";

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
  else if (current.news) showBanner(current.news, "", newsHeading(current.news_about));
  else if (page !== "offer" && current.offer && !current.answer) showBanner(text("news.offer"), "offer");
  else showBanner("", "");
}

// The server's sentence in the page's language, as far as it is known what it is about: what it says beyond that, such as
// the operator's reason, is in English.
function newsHeading(about) {
  const key = `news.about.${about.replaceAll(" ", "_")}`;
  return language === "en" || !hasText(key) ? "" : text(key);
}

// heading: before a message in English; null if the message is in the page's language
function showBanner(message, href, heading = null) {
  const banner = byId("banner");
  if ((banner.dataset.message ?? "") === message) return;
  banner.dataset.message = message;
  banner.hidden = message === "";
  const words = make("span", { lang: heading === null ? null : "en" }, message);
  banner.replaceChildren(heading === null ? "" : `${heading} `, words, " ", href === "" ? "" : make("a", { href }, text("news.look")));
}
