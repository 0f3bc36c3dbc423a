// The table of participants.

import { amount, loss, ofAll, span, timeOf, whole } from "./amounts.js";
import { byId, make } from "./dom.js";

const FIRST_SHOWN = 50;
const GOOD = ["settled", "training", "passed"];
const BAD = ["held", "stopped", "removed", "left out", "declined", "no answer in time", "absent"];

let all = false;
let shown = null; // the status that the table shows

byId("people-more").addEventListener("click", () => {
  all = !all;
  showParticipants(shown);
});

export function showParticipants(status) {
  shown = status;
  const { participants: people, money } = status;
  const unit = money === null ? "" : `, ${money.currency}`;
  const heads = [["client", ""], ["state", ""], ...(status.running ? [["here", ""]] : []), ["labels", "n"], ["solo loss", "n"], ["rounds", "n"], ["refused", "n"],
    [`expected${unit}`, "n"], [`most${unit}`, "n"], [`pay${unit}`, "n"], ["payment", ""]];
  byId("people-heads").replaceChildren(...heads.map(([text, kind]) => make("th", { scope: "col", class: kind }, text)));
  byId("people").replaceChildren(...people.slice(0, all ? people.length : FIRST_SHOWN).map((one) => row(one, money)));
  byId("people-total").replaceChildren(...(money === null ? [] : [totals(people, money, status.running)]));
  byId("people-count").textContent = countWords(status);
  const more = byId("people-more");
  more.hidden = people.length <= FIRST_SHOWN;
  more.textContent = all ? `Show the first ${FIRST_SHOWN}` : `Show all ${whole(people.length)}`;
}

function countWords({ participants: people, running }) {
  const enrolled = people.filter((one) => one.samples !== null).length;
  const here = people.filter((one) => one.connected).length;
  return `${whole(enrolled)} of ${whole(people.length)} enrolled${running ? `, ${whole(here)} connected` : ""}`;
}

function row(one, money) {
  const kind = BAD.includes(one.state) ? "bad" : GOOD.includes(one.state) ? "good" : "";
  const cells = [
    cell("n", ofAll(one.labels_done, one.labels_asked)),
    cell("n", one.solo_loss === null ? "" : loss(one.solo_loss)),
    cell("n", one.rounds_asked > 0 ? ofAll(one.rounds_delivered, one.rounds_asked) : ""),
    cell(one.refused > 0 ? "n bad" : "n", one.refused > 0 ? whole(one.refused) : ""),
    ...[one.expected_pay, one.most_pay, one.settled_pay].map((value) => cell("n", value === null ? "" : amount(value, money))),
    cell("", one.payment ?? ""),
  ];
  return make("tr", {},
    make("th", { scope: "row" }, one.name),
    make("td", {}, make("span", { class: `state ${kind}` }, one.state), remark(one)),
    ...(one.connected === null ? [] : [here(one)]), ...cells);
}

// Why a participant is out, until when one is invited, or what was refused last.
function remark(one) {
  const last = one.refusals[0];
  const text = one.reason || (one.invited_until !== null ? `invitation good until ${timeOf(one.invited_until)}` : "") || (last ? `${last.round === null ? last.stage : `round ${last.round}`}: ${last.reason}` : "");
  return text === "" ? null : make("span", { class: "remark", title: text }, text);
}

function here(one) {
  const seen = one.last_seen === null ? "" : make("time", { class: "soft ago", datetime: one.last_seen });
  return make("td", { class: "here" }, make("span", { class: one.connected ? "dot on" : "dot off", "aria-hidden": "true" }), one.connected ? "yes " : "no ", seen);
}

// How long ago each participant was last seen; called every second.
export function showAges(now) {
  for (const element of document.querySelectorAll("time.ago")) {
    element.textContent = `${span((now - Date.parse(element.dateTime)) / 1000)} ago`;
  }
}

function totals(people, money, running) {
  const sum = (name) => people.reduce((total, one) => total + (one[name] ?? 0), 0);
  const labels = sum("labels_asked") > 0 ? ofAll(sum("labels_done"), sum("labels_asked")) : "";
  return make("tr", {}, make("th", { scope: "row" }, "total"), ...(running ? [cell("", "")] : []), cell("", ""), cell("n", labels), cell("", ""), cell("", ""),
    cell("n", sum("refused") > 0 ? whole(sum("refused")) : ""),
    cell("n", amount(money.expected, money)), cell("n", amount(money.most, money)),
    cell("n", money.settled === null ? "" : amount(money.settled, money)), cell("", ""));
}

function cell(kind, text) {
  return make("td", { class: kind || null }, text);
}
