// What every page tells of the job while it is open: whether the servers answer, the stage and the time that is left, the
// steps until the receipt, and documents that arrive.

import { NO_RESPONSE, RequestError, watchServer } from "./api.js";
import { alarm, byId, make } from "./dom.js";
import { duration, timeOfDay } from "./format.js";
import { parts, text } from "./text.js";

const DOCUMENTS = ["offer", "answer", "receipt", "news", "trouble"];
const STEPS = ["labels", "others", "alone", "tested", "rounds", "final", "receipt"];
const ALONE = ["alone", "tested"]; // steps of an audition
const STEP_OF = { accepted: "labels", labeling: "labels", labeled: "others", alone: "alone", tested_alone: "tested", rounds: "rounds", final: "final" };

let job = null; // the last state of the job, and when it came
let heard = 0;
let wasSoon = false;

// page: name of the current page; documents that it shows itself are not announced
// onChange: called with the new and the previous summary of documents
// known: summary of documents when the page was loaded, if it has one
export function watchDocuments(page, onChange = () => {}, known = null) {
  let first = null;
  let previous = null;
  let lostSince = null;
  function take(current) {
    first ??= current;
    lostSince = null;
    if (byId("alarm").textContent === NO_RESPONSE) alarm("");
    announce(page, current, first);
    showConnection(current.connection, current.job !== null && !["paid", "over"].includes(current.job.stage));
    showJob(current.job);
    if (previous !== null && DOCUMENTS.some((name) => current[name] !== previous[name])) onChange(current, previous);
    previous = current;
  }
  function tellLost(error) {
    lostSince ??= Date.now() / 1000;
    showLost(error instanceof RequestError ? error.message : text("connection.page_lost", { time: timeOfDay(lostSince) }), error.language);
  }
  const ask = watchServer(() => "api/documents", take, tellLost);
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

// connection: whether the node reaches the operator's server; null if no node runs here
export function showConnection(connection, expected) {
  document.body.classList.toggle("alone", connection === null);
  if (connection?.state === "lost") showLost(text("connection.server_lost", { time: timeOfDay(connection.since) }));
  else if (connection?.state === "ended" && expected) showLost(text("connection.node_ended"));
  else showLost("");
}

// What cannot be reached; "" for nothing. Sentences of class "by-itself" are not shown meanwhile.
function showLost(words, language = null) {
  document.body.classList.toggle("lost", words !== "");
  const element = byId("lost") ?? byId("alarm").insertAdjacentElement("afterend", make("div", { class: "alarm", id: "lost", role: "alert" }));
  if (language) element.lang = language;
  else element.removeAttribute("lang");
  const double = words !== "" && !byId("alarm").hidden && byId("alarm").textContent === NO_RESPONSE;
  element.hidden = words === "" || double;
  if (element.textContent !== words) element.textContent = words;
}

// state: of the job, as api/documents has it; null if the participant takes part in none
export function showJob(state) {
  job = state;
  heard = performance.now();
  showClock();
  showSteps();
}

setInterval(() => {
  if (job !== null && job.left !== null && !job.paused) showClock();
}, 1000);

function showClock() {
  const words = job === null ? [] : clockWords();
  const clock = byId("clock") ?? document.querySelector("header.top").appendChild(make("p", { class: "clock", id: "clock" }));
  const soon = job !== null && (job.soon || (job.left !== null && secondsLeft() === 0)) && !job.paused;
  clock.hidden = words.length === 0;
  clock.classList.toggle("soon", soon);
  if (clock.textContent !== words.join(" ")) clock.replaceChildren(make("strong", {}, words[0] ?? ""), words[1] ? ` ${words[1]}` : "");
  if (soon && !wasSoon) warn(words.join(" "));
  if (!soon && wasSoon) warn("");
  wasSoon = soon;
}

// Read aloud once; the clock itself changes every second.
function warn(words) {
  const element = byId("clock-warning") ?? byId("clock").insertAdjacentElement("afterend", make("p", { class: "unseen", id: "clock-warning", role: "status" }));
  element.textContent = words;
}

function secondsLeft() {
  return Math.max(0, job.left - (job.paused ? 0 : (performance.now() - heard) / 1000));
}

// What goes on, and what follows if the time runs out.
function clockWords() {
  const { stage, audition } = job;
  if (stage === "paid" || stage === "over") return [];
  if (job.paused) return [text("clock.paused")];
  if (stage === "accepted") return [text("clock.accepted", { time: duration(job.total) }), text(late(audition))];
  if (stage === "rounds") return [text("clock.rounds", { number: job.round, total: job.rounds })];
  if (job.left === null) return [text(`clock.stage.${stage}`)];
  if (stage === "labeling") {
    return [secondsLeft() === 0 ? text("clock.labeling_over") : text("clock.labeling", { time: duration(secondsLeft()) }), text(late(audition))];
  }
  return [text(`clock.stage.${stage}`), secondsLeft() === 0 ? "" : text("clock.at_most", { time: duration(secondsLeft()) })];
}

function late(audition) {
  return audition ? "clock.late_audition" : "clock.late";
}

// The steps until the receipt, in the element #steps of pages that have one.
function showSteps() {
  const list = byId("steps");
  if (list === null) return;
  const steps = STEPS.filter((step) => job?.audition || !ALONE.includes(step));
  const current = STEP_OF[job?.stage];
  list.hidden = current === undefined;
  if (list.hidden) return;
  const at = steps.indexOf(current);
  const words = steps.map((step) => (step === current && step === "rounds" ? text("steps.rounds_now", { number: job.round, total: job.rounds }) : text(`steps.${step}`)));
  if (list.dataset.words === `${at} ${words}`) return;
  list.dataset.words = `${at} ${words}`;
  list.replaceChildren(...words.map((word, i) =>
    make("li", { class: i < at ? "past" : i === at ? "now" : "later", "aria-current": i === at ? "step" : null },
      word, i < at ? make("span", { class: "unseen" }, ` ${text("steps.past")}`) : null)));
}
