// Labeling, one sample at a time; the next one is shown when the decision about this one is on the disk.

import { NO_RESPONSE, RequestError, getJson, nonce, postUntilAnswered } from "./api.js";
import { SINGLE_KEYS, classButtons, classOfKey, flash, isShortcut, onPress, press } from "./classes.js";
import { alarm, byId, make } from "./dom.js";
import { Pace } from "./pace.js";
import { Queue } from "./queue.js";
import { Stage, UnreadableError } from "./stage.js";
import { onBroadcastDecision, broadcastDecision } from "./tabs.js";
import { watchDocuments } from "./new_documents.js";

const AHEAD = 4; // samples that are loaded in advance

const state = await getJson("api/work").catch((error) => {
  alarm(error instanceof RequestError ? error.message : NO_RESPONSE);
  throw error;
});
const queue = new Queue(state);
const stage = new Stage(byId("stage"), state);
const first = queue.next(-1);
stage.prepare(first === null ? [] : [first]);
const pace = new Pace(state.pauses);
const noun = { picture: "Picture", text: "Text", row: "Row" }[state.kind];
const buttons = classButtons(byId("classes"), state.classes, (number) => unlessBusy(() => label(number)));
let current = null;
let busy = false;

// Run an action unless another one is running: a key pressed before the next sample is shown is ignored.
async function unlessBusy(act) {
  if (busy) return;
  busy = true;
  try {
    await act();
  } finally {
    busy = false;
  }
}

async function label(number) {
  if (current === null) return;
  flash(buttons[number]);
  if (!(await decide("label", number))) return;
  pace.labeled();
  await forward(`Labeled ${state.classes[number].name}.`);
}

async function skip() {
  if (current === null) return;
  const before = current;
  if (!(await decide("skip"))) return;
  await forward(queue.next(before) === before ? "This is the last one left." : "Skipped; it comes back at the end.");
}

async function flag() {
  if (current === null) return;
  const flagged = queue.flagged.has(current);
  if (!(await decide(flagged ? "unflag" : "flag"))) return;
  updateState(flagged ? "Flag taken off." : "Flagged.");
}

async function undo() {
  const result = await send("api/undo", {});
  if (result === null) return;
  if (result.position === null) {
    announce("There is nothing to undo.");
    return;
  }
  queue.apply(result);
  await show(result.position, `Undone: ${result.action}.`);
}

async function move(step) {
  const to = queue.neighbour(current ?? queue.end, step);
  if (to !== null) await show(to);
}

// Send a decision about the current sample; whether the server stored it.
async function decide(action, number) {
  const decision = { position: current, action };
  if (action === "label") decision.label = number;
  const result = await send("api/decisions", decision);
  if (result !== null) queue.apply(result);
  return result !== null;
}

// The server's response, or null after an error.
async function send(path, fields) {
  try {
    const result = await postUntilAnswered(path, { edition: state.edition, nonce: nonce(), ...fields }, alarm);
    if (result.position !== null) broadcastDecision(state.edition, result);
    return result;
  } catch (error) {
    if (error.status === 409) location.reload();
    alarm(error.message);
    return null;
  }
}

function forward(message) {
  return show(queue.next(current ?? -1), message);
}

// Show the sample at a position, or the end if it is null; message is for screen readers.
async function show(at, message = "") {
  if (at === null) return finish(message);
  let element;
  try {
    element = await stage.get(at);
  } catch (error) {
    return cannotShow(at, error);
  }
  current = at;
  byId("done").hidden = true;
  byId("stage").hidden = false;
  if (state.kind === "picture") element.alt = `${noun} ${queue.numberOf(at)}`;
  stage.show(element);
  document.body.dataset.at = at;
  updateState(message);
  const positions = [at, ...queue.upcoming(at, AHEAD), queue.neighbour(at, -1)];
  stage.prepare(positions.filter((position) => position !== null));
  return undefined;
}

async function cannotShow(at, error) {
  if (error instanceof UnreadableError) {
    queue.markUnreadable(at, error.message);
    updateUnreadable();
    return show(queue.next(at));
  }
  if (error.status === 409) return location.reload();
  alarm(error instanceof RequestError ? error.message : NO_RESPONSE);
  if (error instanceof RequestError) {
    current = null; // the picture that is still shown must not get a label
    return updateState("");
  }
  await new Promise((resolve) => setTimeout(resolve, 1000));
  alarm("");
  return show(at);
}

function finish(message) {
  current = null;
  delete document.body.dataset.at;
  byId("stage").hidden = true;
  byId("done").hidden = false;
  updateDone();
  updateState(`${message} All are labeled.`);
  byId("done-title").focus();
}

function updateDone() {
  const flagged = [...queue.flagged].filter((at) => at < queue.end).length;
  byId("done-words").textContent = `${queue.target.toLocaleString("en")} ${noun.toLowerCase()}${queue.target === 1 ? " has" : "s have"} a label` +
    `${flagged ? `, ${flagged} of them with a flag` : ""}. ` +
    nextStep();
}

// A sentence about the next step after all samples are labeled.
function nextStep() {
  if (state.has_labels) return "The labels came with your file, and are changed there.";
  if (state.requested === null) return "They are in labels.db.";
  if (!state.accepted) return "The offer is still to be answered; only then does the job go on.";
  if (state.requested > queue.target) return `The offer asks for ${state.requested.toLocaleString("en")}; there are no more here.`;
  return "Your computer takes it from here; leave truthfl running.";
}

function updateState(message) {
  const { labeled, target } = queue;
  byId("bar").max = Math.max(1, target);
  byId("bar").value = labeled;
  const skipped = queue.skipped.filter((at) => at < queue.end).length;
  byId("count").textContent = `${labeled.toLocaleString("en")} of ${target.toLocaleString("en")} labeled` +
    (skipped ? ` · ${skipped} skipped` : "");
  byId("pace").textContent = pace.text(target - labeled);
  const flagged = current !== null && queue.flagged.has(current);
  byId("flag").setAttribute("aria-pressed", String(flagged));
  const marks = [];
  if (flagged) marks.push("flagged");
  if (current !== null && queue.skipped.includes(current)) marks.push("skipped before");
  byId("marks").replaceChildren(...marks.map((mark) => make("span", { class: "mark" }, mark)));
  press(buttons, current === null ? -1 : queue.labels[current]);
  const readOnly = current === null || state.has_labels;
  for (const button of [byId("skip"), byId("flag"), ...buttons]) button.disabled = readOnly;
  byId("undo").disabled = state.has_labels;
  const position = current === null ? "" : ` ${noun} ${queue.numberOf(current).toLocaleString("en")} of ${target.toLocaleString("en")}.`;
  announce(message + position);
}

// Set the text that screen readers read aloud.
function announce(message) {
  byId("announcement").textContent = message.trim();
}

// List the samples that cannot be read.
function updateUnreadable() {
  const reasons = [...state.problems, ...queue.unreadable.values()];
  const details = byId("unreadable");
  details.hidden = reasons.length === 0;
  details.querySelector("summary").textContent =
    `${reasons.length.toLocaleString("en")} cannot be read and ${reasons.length === 1 ? "is" : "are"} passed over`;
  details.querySelector("ul").replaceChildren(...reasons.slice(0, 200).map((reason) => make("li", {}, reason)));
}

function onKey(event) {
  const target = event.target instanceof Element ? event.target : document.body;
  if (byId("help").open || target.closest("input, textarea, select")) return;
  const onControl = target.closest("button, a, summary") !== null && target.matches(":focus-visible");
  if (onControl && (event.key === " " || event.key === "Enter")) return;
  const action = actionOf(event);
  if (action === null) return;
  event.preventDefault();
  unlessBusy(action);
}

// The function that a key calls, or null.
function actionOf(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  const always = { ArrowLeft: () => move(-1), ArrowRight: () => move(1) };
  if (event.key in always) return always[event.key];
  if (!isShortcut(event)) return null;
  const number = classOfKey(state.classes, event);
  if (state.has_labels) return event.key === "?" ? help : null;
  if (number >= 0) return () => label(number);
  return { " ": skip, Backspace: undo, f: flag, F: flag, "?": help }[event.key] ?? null;
}

function help() {
  byId("help").showModal();
}

function fillHelp() {
  const rows = state.classes.filter(({ key }) => key).map(({ name, key }) => [key, name]);
  const tools = [["space", "skip; it comes back at the end"], ["backspace", "undo"], ["← →", "go back and forth"],
    ["f", "flag, to look at again"], ["?", "this help"]];
  const list = rows.length > 10 && rows.every(([key, name]) => key === name) ? [] : rows;
  byId("help-keys").replaceChildren(...[...list, ...tools].flatMap(([key, meaning]) =>
    [make("dt", {}, make("kbd", {}, key)), make("dd", {}, meaning)]));
  byId("single-keys").checked = localStorage.getItem(SINGLE_KEYS) !== "off";
  byId("single-keys").addEventListener("change", (event) => localStorage.setItem(SINGLE_KEYS, event.target.checked ? "on" : "off"));
}

const tools = { undo, skip, flag, "help-open": help, back: () => move(-1), forward: () => move(1) };
for (const [id, action] of Object.entries(tools)) onPress(byId(id), () => unlessBusy(action));
byId("help-close").addEventListener("click", () => byId("help").close());
document.addEventListener("keydown", onKey);
onBroadcastDecision(state.edition, (result) => {
  queue.apply(result);
  if (current === null && queue.labeled < queue.target) unlessBusy(() => show(queue.next(-1)));
  else updateState("");
});
watchDocuments("label", async () => {
  const fresh = await getJson("api/work").catch(() => state);
  if (fresh.edition !== state.edition || fresh.requested !== state.requested) location.reload();
  state.accepted = fresh.accepted;
  if (current === null) updateDone();
}, state.documents);
fillHelp();
updateUnreadable();
await unlessBusy(() => show(first));
