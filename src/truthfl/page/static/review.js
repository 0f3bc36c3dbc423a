// Review: a grid of all samples with the same label, in which labels can be changed.

import { NO_RESPONSE, RequestError, getJson, nonce, postUntilAnswered } from "./api.js";
import { classButtons, classOfKey, isShortcut, press } from "./classes.js";
import { alarm, byId, make } from "./dom.js";
import { Queue } from "./queue.js";
import { Stage } from "./stage.js";
import { onBroadcastDecision, broadcastDecision } from "./tabs.js";
import { watchDocuments } from "./new_documents.js";

const PAGE_SIZE = 120; // thumbnails

const state = await getJson("api/work").catch((error) => {
  alarm(error instanceof RequestError ? error.message : NO_RESPONSE);
  throw error;
});
const noun = { picture: "Picture", text: "Text", row: "Row" }[state.kind];
const queue = new Queue(state);
const stage = new Stage(byId("large-stage"), state);
const buttons = classButtons(byId("large-classes"), state.classes, (number) => relabel(opened, number));
const groups = [
  ...state.classes.map(({ name }, number) => ({ name, has: (at) => queue.labels[at] === number })),
  { name: "Flagged", has: (at) => queue.flagged.has(at) },
  { name: "Skipped", has: (at) => skipped.has(at) },
].map((item) => ({ ...item, button: groupButton(item.name) }));
let skipped = new Set();
let group = null;
let positions = [];
let shownCount = 0;
let opened = null;
let busy = false;

function groupButton(name) {
  const button = make("button", { type: "button", "aria-pressed": "false" }, make("b", { dir: "auto" }, name), " ",
    make("span"));
  button.addEventListener("click", () => open(groups.find((item) => item.button === button)));
  return button;
}

function positionsIn(someGroup) {
  const inside = [];
  skipped = queue.skippedSet();
  for (let at = 0; at < queue.end; at += 1) if (!queue.unreadable.has(at) && someGroup.has(at)) inside.push(at);
  return inside;
}

function updateGroups() {
  for (const item of groups) {
    item.button.setAttribute("aria-pressed", String(item === group));
    item.button.querySelector("span").textContent = positionsIn(item).length.toLocaleString("en");
  }
}

function open(chosen) {
  group = chosen;
  updateGroups();
  positions = positionsIn(chosen);
  shownCount = 0;
  byId("group-title").textContent = positions.length === 0 ? `${chosen.name}: none` : chosen.name;
  byId("grid").classList.toggle("texts", state.kind !== "picture");
  byId("grid").replaceChildren();
  showMore();
}

function showMore() {
  const next = positions.slice(shownCount, shownCount + PAGE_SIZE);
  byId("grid").append(...next.map((at, i) => make("li", {}, thumb(at, shownCount + i === 0))));
  shownCount += next.length;
  byId("more").hidden = shownCount >= positions.length;
  byId("more").textContent = `Show ${Math.min(PAGE_SIZE, positions.length - shownCount)} more`;
}

function thumb(at, first) {
  const button = make("button", { type: "button", "data-at": at, tabindex: first ? "0" : "-1", dir: state.kind === "picture" ? null : "auto",
    "aria-label": `${noun} ${queue.numberOf(at)}` });
  const address = `thumbs/${state.edition}/${at}`;
  if (state.kind !== "picture") {
    fetch(address).then((response) => response.text()).then((text) => button.prepend(text), () => {});
  } else {
    button.append(make("img", { src: address, alt: "", loading: "lazy", width: 80, height: 80 }));
  }
  if (queue.flagged.has(at)) button.append(make("span", { class: "flag", "aria-hidden": "true" }, "⚑"));
  button.addEventListener("click", () => enlarge(at));
  return button;
}

async function enlarge(at) {
  opened = at;
  byId("large-title").textContent = `${noun} ${queue.numberOf(at)}`;
  press(buttons, queue.labels[at]);
  byId("large-flag").setAttribute("aria-pressed", String(queue.flagged.has(at)));
  byId("large-stage").replaceChildren();
  byId("large").showModal();
  buttons[Math.max(0, queue.labels[at])].focus();
  try {
    const element = await stage.get(at);
    if (state.kind === "picture") element.alt = byId("large-title").textContent;
    stage.prepare([at]);
    if (opened === at) stage.show(element);
  } catch (error) {
    byId("large-stage").textContent = error.message;
  }
}

// Send a decision; the server's response, or null after an error.
async function send(decision) {
  if (busy) return null;
  busy = true;
  try {
    const result = await postUntilAnswered("api/decisions", { edition: state.edition, nonce: nonce(), ...decision }, alarm);
    queue.apply(result);
    broadcastDecision(state.edition, result);
    return result;
  } catch (error) {
    if (error.status === 409) location.reload();
    alarm(error.message);
    return null;
  } finally {
    busy = false;
  }
}

async function relabel(at, number) {
  if (at === null || (await send({ position: at, action: "label", label: number })) === null) return;
  const { name } = state.classes[number];
  const button = buttonAt(at);
  button?.querySelector(".note")?.remove();
  if (groups[number] !== group) button?.append(make("span", { class: "note" }, `now ${name}`));
  byId("announcement").textContent = `Labeled ${name}.`;
  updateGroups();
  if (byId("large").open) byId("large").close();
}

async function flag(at) {
  const flagged = queue.flagged.has(at);
  if ((await send({ position: at, action: flagged ? "unflag" : "flag" })) === null) return;
  byId("large-flag").setAttribute("aria-pressed", String(!flagged));
  const button = buttonAt(at);
  button?.querySelector(".flag")?.remove();
  if (!flagged) button?.append(make("span", { class: "flag", "aria-hidden": "true" }, "⚑"));
  byId("announcement").textContent = flagged ? "Flag taken off." : "Flagged.";
  updateGroups();
}

function buttonAt(at) {
  return byId("grid").querySelector(`[data-at="${at}"]`);
}

function onGridKey(event) {
  const at = Number(event.target.dataset?.at ?? -1);
  if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
  const all = [...byId("grid").querySelectorAll("button")];
  const here = all.indexOf(event.target);
  const columns = all.findIndex((button) => button.offsetTop > all[0].offsetTop);
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: columns > 0 ? -columns : -1, ArrowDown: columns > 0 ? columns : 1,
    Home: -here, End: all.length - 1 - here };
  if (event.key in steps) {
    focusOn(all, here, here + steps[event.key]);
    event.preventDefault();
  } else {
    onDecisionKey(event, at);
  }
}

function focusOn(all, from, to) {
  if (to < 0 || to >= all.length) return;
  all[from].tabIndex = -1;
  all[to].tabIndex = 0;
  all[to].focus();
}

function onDecisionKey(event, at) {
  if (!isShortcut(event)) return;
  const number = classOfKey(state.classes, event);
  if (number >= 0) relabel(at, number);
  else if (event.key.toLowerCase() === "f") flag(at);
  else return;
  event.preventDefault();
}

byId("grid").addEventListener("keydown", onGridKey);
byId("large").addEventListener("keydown", (event) => onDecisionKey(event, opened));
byId("large").addEventListener("close", () => buttonAt(opened)?.focus());
byId("large-close").addEventListener("click", () => byId("large").close());
byId("large-flag").addEventListener("click", () => flag(opened));
byId("more").addEventListener("click", showMore);
byId("groups").replaceChildren(...groups.map(({ button }) => button));
onBroadcastDecision(state.edition, (result) => {
  queue.apply(result);
  updateGroups();
});
watchDocuments("review", undefined, state.documents);
open(groups.find((item) => positionsIn(item).length > 0) ?? groups[0]);
