// The tables: participants, the ledger's last rows with the check of all of it, and what was refused.

import { postJson } from "./api.js";
import { byId, make } from "./dom.js";
import { amount, logTime, loss, ofAll, span, whole } from "./format.js";

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

// Why a participant is out, until when they are invited, or what was refused last.
function remark(one) {
  const last = one.refusals[0];
  const text = one.reason || (one.invited_until !== null ? `invitation good until ${logTime(one.invited_until)}` : "") || (last ? `${last.round === null ? last.stage : `round ${last.round}`}: ${last.reason}` : "");
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

export function showRows({ rows, last_row: last, unreadable_rows: unreadable }) {
  const beware = unreadable > 0 ? `; ${whole(unreadable)} of them truthfl did not write` : "";
  byId("ledger-count").textContent = last > 0 ? `row ${whole(last)} is the last${beware}` : "no rows yet";
  byId("rows").replaceChildren(...rows.map((row) => make("tr", { class: row.kind === "rejection" ? "bad" : null },
    make("td", { class: "n" }, whole(row.sequence)),
    make("td", { class: "soft" }, make("time", { datetime: row.at }, logTime(row.at))),
    make("td", {}, row.words))));
}

export function showRefused({ participants: people, strangers, connections, refused_at: byStage }) {
  const all = [...connections, ...strangers, ...people.flatMap((one) => one.refusals)];
  all.sort((a, b) => (a.at < b.at ? 1 : -1));
  const stages = Object.entries(byStage).map(([stage, count]) => `${whole(count)} in ${stage}`);
  if (connections.length > 0) stages.push(`${whole(connections.length)} at the door`);
  byId("refused-count").textContent = stages.length > 0 ? stages.join(", ") : "nobody, nothing";
  byId("refused").replaceChildren(...all.map((one) => make("li", {},
    make("time", { class: "soft", datetime: one.at }, logTime(one.at)), " ",
    make("b", {}, one.who), ` ${one.round === null ? one.stage : `round ${one.round}`}: ${one.reason}`)));
  if (all.length === 0) byId("refused").replaceChildren(make("li", { class: "soft" }, "Replies and connections that are not taken are listed here, with the reason."));
}

byId("check").addEventListener("click", async () => {
  const [button, verdict] = [byId("check"), byId("verdict")];
  button.disabled = true;
  verdict.className = "verdict";
  verdict.textContent = "Every row is computed again …";
  try {
    const { sound, sentence } = await postJson("api/check", {});
    verdict.className = sound ? "verdict good" : "verdict bad";
    verdict.textContent = sound ? sentence : `Wrong: ${sentence}`;
  } catch (error) {
    verdict.className = "verdict bad";
    verdict.textContent = `It was not checked: ${error.message}`;
  } finally {
    button.disabled = false;
  }
});
