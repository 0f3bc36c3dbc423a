// Review: a grid of all samples with the same label, in which labels can be changed, of one or of many at once.

import { getJson, showError } from "./api.js";
import { classPicker, swatch } from "./classes.js";
import { Decisions, onBroadcastDecision } from "./decisions.js";
import { byId, make, onPress, unlessBusy } from "./dom.js";
import { percent, whole } from "./format.js";
import { watchDocuments } from "./job_news.js";
import { isShortcut } from "./keys.js";
import { Queue, isLabeled, namesOf, numbersOf, toggled } from "./labels.js";
import { LargeView, ReviewGrid } from "./review_views.js";
import { samples, text } from "./text.js";

// Labels that the participant's own model doubts: it runs on their computer, and the page's server asks it.
class SecondLook {
  constructor(state, queue) {
    Object.assign(this, { state, queue });
    this.doubts = new Map(); // {label, predicted, chance} by position, the most doubtful first
    this.handedIn = false;
  }

  // Ask the server; whether there is a model.
  async load() {
    const answer = await getJson("api/second_look").catch(() => ({ doubts: null }));
    this.handedIn = answer.handed_in === true;
    this.doubts = new Map((answer.doubts ?? []).map(({ position, ...doubt }) => [position, doubt]));
    return answer.doubts !== null;
  }

  // Positions of the samples whose label is still the one that is doubted.
  positions() {
    return [...this.doubts.keys()].filter((at) => this.has(at));
  }

  has(at) {
    return this.doubts.has(at) && this.doubts.get(at).label === this.queue.labels[at];
  }

  // On a small view.
  note(at) {
    if (!this.has(at)) return "";
    const { label, predicted } = this.doubts.get(at);
    return text("review.doubt_note", { name: this.nameOf(label), other: this.nameOf(predicted) });
  }

  // In a sentence.
  about(at) {
    if (!this.has(at)) return "";
    const { label, predicted, chance } = this.doubts.get(at);
    return text("review.doubt", { name: this.nameOf(label), other: this.nameOf(predicted), chance: percent(chance, 0) });
  }

  // What the group is, and what changes now do not change.
  explanation() {
    return this.handedIn ? `${text("review.doubts")} ${text("review.handed_in")}` : text("review.doubts");
  }

  nameOf(number) {
    return this.state.classes[number].name;
  }
}

const state = await getJson("api/work").catch((error) => {
  showError(error);
  throw error;
});
const queue = new Queue(state);
const decisions = new Decisions(state, queue);
const secondLook = new SecondLook(state, queue);
const titleOf = (at) => text(`sample.${state.kind}.numbered`, { number: queue.numberOf(at) });
const nameOf = (number) => state.classes[number].name;
let skipped = new Set();
let group = null;
const doubtful = { name: text("review.group_doubtful"), positions: () => secondLook.positions() };
const groups = [
  ...state.classes.map(({ name }, number) => ({ name, number, has: (at) => numbersOf(queue.labels[at]).includes(number) })),
  { name: text("review.group_flagged"), has: (at) => queue.flagged.has(at) },
  { name: text("review.group_skipped"), has: (at) => skipped.has(at) },
  { name: text("review.group_unlabeled"), has: (at) => !isLabeled(queue.labels[at]) },
  doubtful,
];
for (const item of groups) item.button = groupButton(item);
doubtful.button.hidden = true;
const grid = new ReviewGrid(state, queue, { titleOf, noteOf, onOpen: (at) => large.open(at), onSelect: updateSelection });
const large = new LargeView(state, queue, { titleOf, aboutOf: (at) => secondLook.about(at) },
  { onLabel: (at, number) => unlessBusy(() => relabel([at], number)), onFlag: (at) => unlessBusy(() => flag(at)),
    onClose: (at) => grid.focus(at) });
const picker = classPicker(byId("selection-classes"), state.classes, (number) => unlessBusy(() => relabel([...grid.selected], number)));

function groupButton(item) {
  const button = make("button", { type: "button", "aria-pressed": "false" }, item.number === undefined ? null : swatch(item.number, state.classes),
    make("b", { dir: "auto" }, item.name), " ", make("span", { class: "count" }));
  button.addEventListener("click", () => open(item));
  return button;
}

function positionsIn(item) {
  const inside = [];
  skipped = queue.skippedSet();
  if (item.positions) return item.positions().filter((at) => at < queue.end && !queue.unreadable.has(at));
  for (let at = 0; at < queue.end; at += 1) if (!queue.unreadable.has(at) && item.has(at)) inside.push(at);
  return inside;
}

function updateGroups() {
  for (const item of groups) {
    item.button.setAttribute("aria-pressed", String(item === group));
    item.button.querySelector(".count").textContent = whole(positionsIn(item).length);
  }
}

function open(chosen) {
  group = chosen;
  updateGroups();
  const positions = positionsIn(chosen);
  byId("group-title").textContent = positions.length === 0 ? text("review.none_in_group", { name: chosen.name }) : chosen.name;
  byId("about").hidden = chosen !== doubtful;
  byId("about").textContent = chosen === doubtful ? secondLook.explanation() : "";
  grid.show(positions);
}

// What is written on the small view of a sample: its label, unless the group says it.
function noteOf(at) {
  const label = queue.labels[at];
  const doubt = group === doubtful ? secondLook.note(at) : "";
  if (doubt !== "") return doubt;
  const name = namesOf(label, state.classes);
  if (name === "") return group.number === undefined ? "" : text("review.now_unlabeled");
  if (group.number === undefined && group !== doubtful) return name;
  if (!numbersOf(label).includes(group.number)) return text("review.now", { name });
  return numbersOf(label).length > 1 ? name : "";
}

function announce(message) {
  byId("announcement").textContent = message;
}

function updateAll(message) {
  grid.refresh();
  large.update();
  updateGroups();
  announce(message);
}

// Give samples a label or, where there may be several classes, one class more, or one less if all of them have it.
async function relabel(positions, number) {
  if (positions.length === 0 || positions[0] === null) return;
  if (state.several) {
    await changeClasses(positions, number);
    return;
  }
  const several = positions.length > 1;
  const result = await (several ? decisions.relabel(positions, number) : decisions.decide(positions[0], "label", number));
  if (result === null) {
    updateAll("");
    return;
  }
  grid.clear();
  const named = { name: nameOf(number) };
  updateAll(several ? text("review.labeled_many", { ...named, samples: samples(positions.length, state.kind) }) : text("common.labeled_as", named));
  large.close();
}

async function changeClasses(positions, number) {
  const changed = positions.some((at) => !queue.labels[at].includes(number)) ? positions.filter((at) => !queue.labels[at].includes(number)) : positions;
  const labels = changed.map((at) => toggled(queue.labels[at], number));
  if (!labels.every(isLabeled)) {
    announce(text("review.one_remains"));
    return;
  }
  const result = await (changed.length > 1 ? decisions.relabel(changed, labels) : decisions.decide(changed[0], "label", labels[0]));
  if (result === null) {
    updateAll("");
    return;
  }
  const said = text(labels[0].includes(number) ? "label.chosen" : "label.taken_off", { name: nameOf(number) });
  updateAll(`${said} ${changed.length > 1 ? samples(changed.length, state.kind) : titleOf(changed[0])}`);
}

async function flag(at) {
  const flagged = queue.flagged.has(at);
  if ((await decisions.decide(at, flagged ? "unflag" : "flag")) !== null) updateAll(text(flagged ? "common.unflagged" : "common.flagged"));
}

async function undo() {
  const result = await decisions.undo();
  if (result === null) return;
  if (result.position === null) announce(text("label.nothing_to_undo"));
  else updateAll(`${text(`label.undone.${result.action}`)} ${undoneSamples(result)}`);
}

function undoneSamples({ position, also = [] }) {
  return also.length > 0 ? samples(also.length + 1, state.kind) : titleOf(position);
}

function updateSelection() {
  const count = grid.selected.size;
  byId("selection").hidden = count === 0;
  byId("select").setAttribute("aria-pressed", String(grid.selecting || count > 0));
  byId("selected-count").textContent = text("review.selected", { count });
}

function onKey(event) {
  const target = event.target instanceof Element ? event.target : document.body;
  if (document.querySelector("dialog[open]:not(#large)") !== null || target.closest("input") !== null) return;
  if (large.isOpen ? large.takesKey(event) : grid.takesKey(event)) {
    event.preventDefault();
    return;
  }
  if (!isShortcut(event)) return;
  const action = actionOf(event, large.isOpen ? large.at : Number(target.dataset?.at ?? -1));
  if (action === null) return;
  event.preventDefault();
  unlessBusy(action);
}

// The function that a key calls, or null. at: the sample that is shown large or has the focus; -1 for none
function actionOf(event, at) {
  if (event.key === "Backspace") return undo;
  const chosen = !large.isOpen && grid.selected.size > 0 ? [...grid.selected] : [at];
  const number = picker.classOf(event);
  if (chosen[0] < 0) return null;
  if (number >= 0) return () => relabel(chosen, number);
  return !picker.searches && event.key.toLowerCase() === "f" && at >= 0 ? () => flag(at) : null;
}

onPress(byId("undo"), () => unlessBusy(undo));
onPress(byId("select"), () => {
  if (grid.selecting || grid.selected.size > 0) grid.clear();
  else {
    grid.selecting = true;
    updateSelection();
  }
});
onPress(byId("clear"), () => grid.clear());
for (const id of ["undo", "select"]) byId(id).disabled = state.has_labels;
byId("groups").replaceChildren(...groups.map(({ button }) => button));
document.addEventListener("keydown", onKey);
onBroadcastDecision(state.edition, (result) => {
  queue.apply(result);
  updateAll("");
});
watchDocuments("review", undefined, state.documents);
open(groups.find((item) => positionsIn(item).length > 0) ?? groups[0]);
doubtful.button.hidden = !(await secondLook.load());
updateGroups();
