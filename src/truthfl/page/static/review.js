// The grid: all that have one label, side by side; what does not belong there gets another.

import { Refused, SILENT, ask, nonce, tellUntilHeard } from "./api.js";
import { classButtons, classOfKey, keyActs, press } from "./classes.js";
import { alarm, byId, make } from "./dom.js";
import { Queue } from "./queue.js";
import { Stage } from "./stage.js";
import { hearOthers, tellOthers } from "./tabs.js";
import { watchPapers } from "./watch.js";

const AT_ONCE = 120;

const state = await ask("api/work").catch((error) => {
  alarm(error instanceof Refused ? error.message : SILENT);
  throw error;
});
const queue = new Queue(state);
const stage = new Stage(byId("large-stage"), state);
const buttons = classButtons(byId("large-classes"), state.classes, (number) => relabel(opened, number));
const groups = [
  ...state.classes.map(({ name }, number) => ({ name, has: (at) => queue.labels[at] === number })),
  { name: "Flagged", has: (at) => queue.flagged.has(at) },
  { name: "Skipped", has: (at) => skipped.has(at) },
].map((one) => ({ ...one, button: groupButton(one) }));
let skipped = new Set();
let group = null;
let members = [];
let shown = 0;
let opened = null;
let busy = false;

function groupButton(one) {
  const button = make("button", { type: "button", "aria-pressed": "false" }, make("b", { dir: "auto" }, one.name), " ",
    make("span"));
  button.addEventListener("click", () => open(groups.find(({ button: its }) => its === button)));
  return button;
}

function membersOf(one) {
  const inside = [];
  skipped = queue.skippedSet();
  for (let at = 0; at < queue.end; at += 1) if (!queue.unreadable.has(at) && one.has(at)) inside.push(at);
  return inside;
}

function tellGroups() {
  for (const one of groups) {
    one.button.setAttribute("aria-pressed", String(one === group));
    one.button.querySelector("span").textContent = membersOf(one).length.toLocaleString("en");
  }
}

function open(chosen) {
  group = chosen;
  tellGroups();
  members = membersOf(chosen);
  shown = 0;
  byId("group-title").textContent = members.length === 0 ? `${chosen.name}: none` : chosen.name;
  byId("grid").classList.toggle("texts", state.kind === "text");
  byId("grid").replaceChildren();
  more();
}

function more() {
  const next = members.slice(shown, shown + AT_ONCE);
  byId("grid").append(...next.map((at, i) => make("li", {}, thumb(at, shown + i === 0))));
  shown += next.length;
  byId("more").hidden = shown >= members.length;
  byId("more").textContent = `Show ${Math.min(AT_ONCE, members.length - shown)} more`;
}

function thumb(at, first) {
  const button = make("button", { type: "button", "data-at": at, tabindex: first ? "0" : "-1", dir: state.kind === "text" ? "auto" : null,
    "aria-label": `${state.kind === "text" ? "Text" : "Picture"} ${queue.numberOf(at)}` });
  const address = `thumbs/${state.edition}/${at}`;
  if (state.kind === "text") {
    fetch(address).then((answer) => answer.text()).then((text) => button.prepend(text), () => {});
  } else {
    button.append(make("img", { src: address, alt: "", loading: "lazy", width: 80, height: 80 }));
  }
  if (queue.flagged.has(at)) button.append(make("span", { class: "flag", "aria-hidden": "true" }, "⚑"));
  button.addEventListener("click", () => enlarge(at));
  return button;
}

async function enlarge(at) {
  opened = at;
  byId("large-title").textContent = `${state.kind === "text" ? "Text" : "Picture"} ${queue.numberOf(at)}`;
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

async function send(said) {
  if (busy) return null;
  busy = true;
  try {
    const now = await tellUntilHeard("api/decisions", { edition: state.edition, nonce: nonce(), ...said }, alarm);
    queue.apply(now);
    tellOthers(state.edition, now);
    return now;
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
  byId("said").textContent = `Labeled ${name}.`;
  tellGroups();
  if (byId("large").open) byId("large").close();
}

async function flag(at) {
  const raised = queue.flagged.has(at);
  if ((await send({ position: at, action: raised ? "unflag" : "flag" })) === null) return;
  byId("large-flag").setAttribute("aria-pressed", String(!raised));
  const button = buttonAt(at);
  button?.querySelector(".flag")?.remove();
  if (!raised) button?.append(make("span", { class: "flag", "aria-hidden": "true" }, "⚑"));
  byId("said").textContent = raised ? "Flag taken off." : "Flagged.";
  tellGroups();
}

function buttonAt(at) {
  return byId("grid").querySelector(`[data-at="${at}"]`);
}

function onGridKey(event) {
  const at = Number(event.target.dataset?.at ?? -1);
  if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
  const all = [...byId("grid").querySelectorAll("button")];
  const here = all.indexOf(event.target);
  const columns = all.findIndex((one) => one.offsetTop > all[0].offsetTop);
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
  if (!keyActs(event)) return;
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
byId("more").addEventListener("click", more);
byId("groups").replaceChildren(...groups.map(({ button }) => button));
hearOthers(state.edition, (now) => {
  queue.apply(now);
  tellGroups();
});
watchPapers("review", undefined, state.papers);
open(groups.find((one) => membersOf(one).length > 0) ?? groups[0]);
