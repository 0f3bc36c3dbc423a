// The ledger's last rows with the check of all of it, and what was refused.

import { postJson } from "./api.js";
import { timeOf, whole } from "./amounts.js";
import { byId, make } from "./dom.js";

export function showRows({ rows, last_row: last, unreadable_rows: unreadable }) {
  const beware = unreadable > 0 ? `; ${whole(unreadable)} of them truthfl did not write` : "";
  byId("ledger-count").textContent = last > 0 ? `row ${whole(last)} is the last${beware}` : "no rows yet";
  byId("rows").replaceChildren(...rows.map((row) => make("tr", { class: row.kind === "rejection" ? "bad" : null },
    make("td", { class: "n" }, whole(row.sequence)),
    make("td", { class: "soft" }, make("time", { datetime: row.at }, timeOf(row.at))),
    make("td", {}, row.words))));
}

export function showRefused({ participants: people, strangers, connections, refused_at: byStage }) {
  const all = [...connections, ...strangers, ...people.flatMap((one) => one.refusals)];
  all.sort((a, b) => (a.at < b.at ? 1 : -1));
  const stages = Object.entries(byStage).map(([stage, count]) => `${whole(count)} in ${stage}`);
  if (connections.length > 0) stages.push(`${whole(connections.length)} at the door`);
  byId("refused-count").textContent = stages.length > 0 ? stages.join(", ") : "nobody, nothing";
  byId("refused").replaceChildren(...all.map((one) => make("li", {},
    make("time", { class: "soft", datetime: one.at }, timeOf(one.at)), " ",
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
