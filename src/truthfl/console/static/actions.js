// Commands: a dialog asks what and why, then for confirmation; the server signs and writes them, and makes invitations.

import { postJson } from "./api.js";
import { byId, make } from "./dom.js";
import { amount, logTime, number, whole } from "./format.js";

const WORDS = {
  pause: ["Pause", "Pause the job", "Nothing more is asked of anybody, and deadlines move on, until you resume it."],
  resume: ["Resume", "Resume the job", "The job goes on where it was; deadlines are later by the pause."],
  invite: ["Invite…", "Invite a participant", "You get an invitation to send. The participant joins with it, by a key that their own machine makes. It is good once."],
  extend: ["Extend…", "Extend a deadline", "The server waits longer in this stage."],
  remove: ["Remove…", "Remove a participant", "Nothing more is asked of the participant. What they have delivered is paid by their contract; they are told why."],
  accept: ["Accept a model…", "Accept a solo model", "It is far better than honest ones usually are. It is paid as offered, and takes part in the joint training."],
  refuse: ["Refuse a model…", "Refuse a solo model", "It is not paid, and takes no part in the joint training. The participant is told why."],
  end: ["End…", "End the job", "No further round takes place. What was delivered until now is tested and paid by the contracts. This cannot be undone."],
  approve: ["", "Approve the plan", "The offers go out now; everybody who accepts one has a contract with you."],
  disapprove: ["", "Decline the plan", "No offer goes out, and the job ends."],
};
const [ACTED, CONFIRMING] = ["filling in", "confirming"];

let status = null; // the newest
let kind = ""; // of the command in the dialog
let step = ACTED;
let file = ""; // URL of the invitation as a file; "" if none is shown

export function showActions(newest) {
  status = newest;
  const offered = status.over || status.ended !== null ? []
    : [...(status.invitable.length > 0 ? ["invite"] : []), status.paused ? "resume" : "pause",
      ...(status.extendable.length > 0 ? ["extend"] : []), ...(held().length > 0 ? ["accept", "refuse"] : []), "remove", "end"];
  const signature = `${offered.join()} ${status.can_act}`;
  const buttons = byId("buttons");
  if (buttons.dataset.offered !== signature) {
    buttons.dataset.offered = signature;
    buttons.replaceChildren(...(status.can_act ? offered : []).map((name) => {
      const button = make("button", { type: "button", class: name === "end" ? "plain small danger" : "plain small", id: `do-${name}` }, WORDS[name][0]);
      button.addEventListener("click", () => open(name));
      return button;
    }), status.can_act || status.over ? "" : make("span", { class: "soft" }, "There is no key here to sign commands with: this page shows, and changes nothing."));
  }
  byId("actions").hidden = status.over && byId("notice").textContent === "";
  for (const name of ["approve", "disapprove"]) byId(name).hidden = !status.can_act;
  showWaiting();
}

// Whose solo models wait for a decision.
function held() {
  return status.participants.filter((one) => one.state === "held").map((one) => one.name);
}

function showWaiting() {
  const { waiting } = status;
  byId("waiting").hidden = waiting === null;
  if (waiting === null) return;
  const value = (sum) => amount(sum, waiting);
  byId("waiting-words").textContent = `${whole(waiting.offers.length)} offers under the contract ${waiting.contract}: expected pay ` +
    `${value(waiting.total_expected)} ${waiting.currency} in all, up to ${number(waiting.largest_factor, 2)} times the cost of the work, ` +
    (waiting.has_cap ? `and never more than ${value(waiting.total_most)}.` : `and more if the model is better than expected: ${value(waiting.total_most)} for a loss of 0.`);
  const cells = (offer) => [whole(offer.labels), whole(offer.batch_size), value(offer.cost), value(offer.expected_pay),
    number(offer.expected_pay / offer.cost, 2), value(offer.most)].map((text) => make("td", { class: "n" }, text));
  byId("waiting-offers").replaceChildren(...waiting.offers.map((offer) => make("tr", {}, make("th", { scope: "row" }, offer.client), ...cells(offer))));
  byId("waiting-left-out").replaceChildren(...waiting.sentences.map((text) => make("li", { class: text.startsWith("Beware") ? "bad" : null }, text)),
    ...Object.entries(waiting.left_out).map(([name, reason]) => make("li", {}, `Not asked: ${name}; ${reason}.`)));
}

function open(name) {
  kind = name;
  step = ACTED;
  const [, title, words] = WORDS[name];
  byId("act-title").textContent = title;
  byId("act-words").textContent = words;
  byId("act-why").value = "";
  byId("field-client").hidden = !["remove", "invite", "accept", "refuse"].includes(name);
  byId("field-days").hidden = name !== "invite";
  byId("field-address").hidden = name !== "invite" || !status.asks_address;
  byId("field-stage").hidden = byId("field-minutes").hidden = name !== "extend";
  if (name === "remove") fill("act-client", status.participants.filter((one) => !status.out.includes(one.state)).map((one) => one.name));
  if (name === "accept" || name === "refuse") fill("act-client", held());
  if (name === "invite") fill("act-client", status.invitable);
  if (name === "extend") fill("act-stage", status.extendable);
  showStep("");
  byId("act").showModal();
}

function fill(id, values) {
  byId(id).replaceChildren(...values.map((value) => make("option", { value }, value)));
}

function request() {
  const body = { kind, why: byId("act-why").value.trim() };
  if (["remove", "accept", "refuse"].includes(kind)) body.client = byId("act-client").value;
  if (kind === "invite") {
    const address = status.asks_address ? byId("act-address").value.trim() : "";
    Object.assign(body, { client: byId("act-client").value, days: Number(byId("act-days").value), address });
  }
  if (kind === "extend") Object.assign(body, { stage: byId("act-stage").value, minutes: Number(byId("act-minutes").value) });
  if (kind === "approve" || kind === "disapprove") body.plan = status.waiting?.digest ?? "";
  return body;
}

function missing(body) {
  if (body.why === "") return "Say why; it stands in the ledger.";
  if (kind === "remove" && body.client === "") return "There is nobody to remove.";
  if ((kind === "accept" || kind === "refuse") && body.client === "") return "No model waits any more.";
  if (kind === "invite" && !(Number.isInteger(body.days) && body.days >= 1 && body.days <= 365)) return "Days are a whole number from 1 to 365.";
  if (kind === "invite" && status.asks_address && body.address === "") return "Say where the participant reaches the server: HOST:PORT.";
  if (kind === "extend" && !(Number.isInteger(body.minutes) && body.minutes >= 1 && body.minutes <= 525600)) return "Minutes are a whole number from 1 to 525,600.";
  return "";
}

function showStep(wrong) {
  const confirming = step === CONFIRMING;
  byId("act-fields").hidden = confirming;
  byId("act-confirm").hidden = !confirming;
  byId("act-back").textContent = confirming ? "Back" : "Cancel";
  byId("act-go").textContent = confirming ? "Sign it" : "Go on";
  byId("act-wrong").textContent = wrong;
}

function confirmWords({ client, stage, minutes, days, why }) {
  const what = kind === "remove" ? `Remove ${client}` : kind === "accept" || kind === "refuse" ? `${WORDS[kind][1]}: that of ${client}` : kind === "invite" ? `Invite ${client}, for ${whole(days)} days` : kind === "extend" ? `Extend the time to ${stage} by ${whole(minutes)} minutes` : WORDS[kind][1];
  return `${what}. Why: ${why}. This is signed with the operator’s key and stands in the ledger for good.`;
}

byId("act-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const body = request();
  const wrong = missing(body);
  if (wrong !== "") {
    showStep(wrong);
  } else if (step === ACTED) {
    step = CONFIRMING;
    byId("act-confirm").textContent = confirmWords(body);
    showStep("");
    byId("act-go").focus();
  } else {
    await send(body);
  }
});

async function send(body) {
  byId("act-go").disabled = true;
  try {
    const { row, invitation } = await postJson("api/command", body);
    byId("notice").textContent = `Signed: ${WORDS[kind][1].toLowerCase()}. It is row ${whole(row)} of the ledger.`;
    byId("act").close();
    if (invitation) showInvitation(invitation);
  } catch (error) {
    showStep(`It was not done: ${error.message}`);
  } finally {
    byId("act-go").disabled = false;
  }
}

byId("act-back").addEventListener("click", () => {
  if (step === CONFIRMING) {
    step = ACTED;
    showStep("");
    byId("act-why").focus();
  } else {
    byId("act").close();
  }
});
for (const name of ["approve", "disapprove"]) byId(name).addEventListener("click", () => open(name));

// An invitation that was just made: to copy or to save, and then forgotten. The page keeps nothing of it.
function showInvitation({ name, line, text, expires }) {
  file = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const fileName = `${name}.invitation`;
  byId("invited-title").textContent = `An invitation for ${name}`;
  byId("invited-words").textContent = `It is good once, until ${logTime(expires)}, and it is not shown again. Whoever uses it first takes part ` +
    `as ${name}, so send it by a way that you both trust. They join with the file, or paste the line into the second command:`;
  byId("invited-commands").textContent = `truthfl join ${fileName} --data THEIR-DATA\ntruthfl join - --data THEIR-DATA`;
  byId("invited-line").value = line;
  Object.assign(byId("invited-save"), { href: file, download: fileName });
  byId("invited-done").textContent = "";
  byId("invited").showModal();
  byId("invited-copy").focus();
}

async function copied() {
  const line = byId("invited-line");
  line.select();
  try {
    await navigator.clipboard.writeText(line.value);
    return true;
  } catch {
    return document.execCommand("copy"); // where a browser has no other way
  }
}

byId("invited-copy").addEventListener("click", async () => {
  byId("invited-done").textContent = await copied() ? "Copied." : "It could not be copied; the line is marked: copy it yourself.";
});
byId("invited-close").addEventListener("click", () => byId("invited").close());
byId("invited").addEventListener("close", () => {
  URL.revokeObjectURL(file);
  file = "";
  byId("invited-line").value = "";
  byId("invited-save").removeAttribute("href");
});
