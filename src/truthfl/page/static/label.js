// Labeling, one sample at a time; the next one is shown when the decision about this one is on the disk.

import { RequestError, getJson, showError } from "./api.js";
import { classPicker } from "./classes.js";
import { Decisions, onBroadcastDecision } from "./decisions.js";
import { alarm, byId, make, onPress, unlessBusy } from "./dom.js";
import { money } from "./format.js";
import { openInstructions, prepareDialog } from "./instructions.js";
import { watchDocuments } from "./job_news.js";
import { fillHelp, isShortcut, lookAction, zoomStep } from "./keys.js";
import { Choices, Queue, isLabeled, namesOf } from "./labels.js";
import { LastDecision, Pace, listUnreadable, tellOtherClasses } from "./progress.js";
import { Stage, UnreadableError, Zoom } from "./stage.js";
import { text } from "./text.js";

const AHEAD = 4; // samples that are loaded in advance

const state = await getJson("api/work").catch((error) => {
  showError(error);
  throw error;
});
const queue = new Queue(state);
const decisions = new Decisions(state, queue);
const choices = new Choices(queue);
const stage = new Stage(byId("stage"), state);
const first = queue.next(-1);
stage.prepare(first === null ? [] : [first]);
await undefined; // the browser asks for the first sample now, and all else is prepared while it comes
const pace = new Pace(state.pauses);
const zoom = new Zoom(byId("stage"), (picture) => stage.loadWhole(picture, current));
const last = new LastDecision(state); // the decision that undo would take back
let current = null;
let worth = null; // what a label is expected to bring
let unseen = false; // whether the alarm says that a sample could not be shown
const picker = classPicker(byId("classes"), state.classes, (number) => unlessBusy(() => choose(number)));

// Take a class: as the label or, where there may be several, as one of them, which are confirmed together.
async function choose(number) {
  if (current === null) return;
  if (state.several) {
    const key = choices.toggle(current, number) ? "label.chosen" : "label.taken_off";
    updateState(text(key, { name: state.classes[number].name }));
    return;
  }
  picker.flash(number);
  await label(number);
}

async function confirm() {
  if (current === null) return;
  if (isLabeled(choices.at(current))) await label(choices.at(current));
  else announce(text("label.choose_one"));
}

// Store a label: the number of a class, or a list of them.
async function label(given) {
  if (!(await decide("label", given))) return;
  pace.labeled();
  await forward(text("common.labeled_as", { name: namesOf(given, state.classes) }));
}

async function skip() {
  if (current === null) return;
  const before = current;
  if (!(await decide("skip"))) return;
  await forward(queue.next(before) === before ? text("label.last_one") : text("label.skipped"));
}

async function flag() {
  if (current === null) return;
  const flagged = queue.flagged.has(current);
  if (!(await decide(flagged ? "unflag" : "flag"))) return;
  updateState(text(flagged ? "common.unflagged" : "common.flagged"));
}

async function undo() {
  const result = await decisions.undo();
  if (result === null) return;
  if (result.position === null) {
    announce(text("label.nothing_to_undo"));
    return;
  }
  last.takeBack();
  choices.forget(result.position);
  await show(result.position, text(`label.undone.${result.action}`));
}

function openHelp() {
  byId("help").showModal();
}

async function move(step) {
  const to = queue.neighbour(current ?? queue.end, step);
  if (to !== null) await show(to);
}

// Send a decision about the current sample; whether the server stored it.
async function decide(action, given) {
  const result = await decisions.decide(current, action, given);
  if (action === "label" || action === "skip") choices.forget(current);
  if (result === null) updateState("");
  else {
    const shown = byId("stage").firstElementChild;
    last.add(result, shown);
  }
  return result !== null;
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
  if (unseen) alarm("");
  unseen = false;
  byId("done").hidden = true;
  byId("stage").hidden = false;
  if (state.kind === "picture") element.alt = text("sample.picture.numbered", { number: queue.numberOf(at) });
  zoom.attach(state.kind === "picture" ? element : null);
  stage.show(element);
  document.body.dataset.at = at;
  updateState(message);
  const positions = [at, ...queue.upcoming(at, AHEAD), queue.neighbour(at, -1)];
  stage.prepare(positions.filter((position) => position !== null));
  return undefined;
}

async function cannotShow(at, error) {
  if (error instanceof UnreadableError) {
    queue.markUnreadable(at, error.form);
    listUnreadable(state, queue);
    return show(queue.next(at));
  }
  if (error.status === 409) return location.reload();
  showError(error);
  unseen = true;
  if (error instanceof RequestError) {
    current = null; // the picture that is still shown must not get a label
    return updateState("");
  }
  await new Promise((resolve) => setTimeout(resolve, 1000));
  return show(at);
}

function finish(message) {
  current = null;
  delete document.body.dataset.at;
  byId("stage").hidden = true;
  byId("done").hidden = false;
  updateDone();
  updateState(`${message} ${text("label.all_labeled")}`);
  byId("done-title").focus();
}

// Before there is an offer, nobody knows the job's classes: a label would be of none of them.
function waitForClasses() {
  document.removeEventListener("keydown", onKey);
  for (const id of ["stage", "controls"]) byId(id).hidden = true;
  byId("no-classes").hidden = false;
}

function updateDone() {
  const flagged = [...queue.flagged].filter((at) => at < queue.end).length;
  const labeled = text(`label.have_labels.${state.kind}`, { count: queue.target });
  const sum = flagged ? text("label.sum_with_flags", { labeled, count: flagged }) : text("label.sum", { labeled });
  byId("done-words").textContent = `${sum} ${nextStep()}`;
}

// A sentence about the next step after all samples are labeled.
function nextStep() {
  if (state.has_labels) return text("label.came_with_file");
  if (state.requested === null) return text("label.saved");
  if (!state.accepted) return text("label.offer_unanswered");
  if (state.requested > queue.target) return text("label.too_few", { number: state.requested });
  return text("label.computer_goes_on");
}

function updateState(message) {
  const { labeled, target } = queue;
  byId("bar").max = Math.max(1, target);
  byId("bar").value = labeled;
  const skipped = queue.skipped.filter((at) => at < queue.end).length;
  byId("count").textContent = text(skipped ? "label.count_with_skipped" : "label.count", { labeled, total: target, count: skipped });
  byId("pace").textContent = pace.text(target - labeled);
  updateWorth(labeled);
  tellOtherClasses(state, queue);
  const flagged = current !== null && queue.flagged.has(current);
  byId("flag").setAttribute("aria-pressed", String(flagged));
  const marks = [];
  if (current !== null && queue.skipped.includes(current)) marks.push(text("label.mark_skipped"));
  const given = current === null ? -1 : choices.at(current);
  picker.press(given);
  if (isLabeled(given) && picker.searches) marks.push(text(state.several ? "label.mark_chosen" : "label.mark_labeled", { name: namesOf(given, state.classes) }));
  byId("marks").replaceChildren(...marks.map((mark) => make("span", { class: "mark" }, mark)));
  const readOnly = current === null || state.has_labels;
  for (const button of [byId("skip"), byId("flag")]) button.disabled = readOnly;
  picker.disable(readOnly);
  byId("confirm").disabled = readOnly || !isLabeled(given);
  byId("undo").disabled = state.has_labels;
  const position = current === null ? "" : text(`sample.${state.kind}.numbered_of`, { number: queue.numberOf(current), total: target });
  announce(`${message} ${position}`);
}

// What the labels so far are expected to bring, if the offer was accepted.
function updateWorth(labeled) {
  byId("worth").hidden = worth === null || labeled === 0;
  if (byId("worth").hidden) return;
  const pay = money(worth.per_label * Math.min(labeled, worth.samples), worth);
  byId("worth").textContent = text(worth.audition ? "label.worth_audition" : "label.worth", { pay, total: worth.samples });
}

async function loadWorth() {
  worth = (await getJson("api/worth").catch(() => ({ worth: null }))).worth;
  updateWorth(queue.labeled);
}

// Set the text that screen readers read aloud.
function announce(message) {
  byId("announcement").textContent = message.trim();
}

function onKey(event) {
  const target = event.target instanceof Element ? event.target : document.body;
  if (document.querySelector("dialog[open]") !== null || target.closest("input, textarea, select")) return;
  const onControl = target.closest("button, a, summary") !== null && target.matches(":focus-visible");
  if (onControl && (event.key === " " || event.key === "Enter")) return;
  const look = current === null ? null : lookAction(event, zoom, byId("stage"), state.classes);
  const action = look ?? actionOf(event);
  if (action === null) {
    if (picker.searches && isShortcut(event)) picker.opensBy(event);
    return;
  }
  event.preventDefault();
  if (look !== null) look();
  else unlessBusy(action);
}

// The function that a key calls, or null.
function actionOf(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  const always = { ArrowLeft: () => move(-1), ArrowRight: () => move(1) };
  if (event.key in always) return event.shiftKey ? null : always[event.key];
  if (event.key === "Enter" && state.several && !state.has_labels && !event.repeat) return confirm;
  if (!isShortcut(event)) return null;
  if (state.has_instructions && !picker.searches && event.key.toLowerCase() === "i") return openInstructions;
  if (state.has_labels) return event.key === "?" ? openHelp : null;
  const number = picker.classOf(event);
  if (number >= 0) return () => choose(number);
  const tools = { " ": skip, Backspace: undo, "?": openHelp };
  return (picker.searches ? tools : { ...tools, f: flag, F: flag })[event.key] ?? null;
}

const tools = { undo, skip, flag, confirm, "help-open": openHelp, "instructions-open": openInstructions, back: () => move(-1), forward: () => move(1) };
for (const [id, action] of Object.entries(tools)) onPress(byId(id), () => unlessBusy(action));
onPress(byId("zoom-in"), () => zoomStep(zoom, true));
onPress(byId("zoom-out"), () => zoomStep(zoom, false));
byId("several").hidden = !state.several || state.has_labels;
byId("zoom").hidden = state.kind !== "picture";
document.addEventListener("keydown", onKey);
onBroadcastDecision(state.edition, (result) => {
  queue.apply(result);
  if (result.undone) last.takeBack();
  else last.add(result, null);
  if (current === null && queue.labeled < queue.target) unlessBusy(() => show(queue.next(-1)));
  else updateState("");
});
watchDocuments("label", async () => {
  const fresh = await getJson("api/work").catch(() => state);
  if (fresh.edition !== state.edition || fresh.requested !== state.requested) location.reload();
  state.accepted = fresh.accepted;
  state.has_instructions = fresh.has_instructions;
  byId("instructions-open").hidden = !state.has_instructions;
  loadWorth();
  if (current === null) updateDone();
}, state.documents);
byId("instructions-open").hidden = !state.has_instructions;
prepareDialog();
listUnreadable(state, queue);
updateState("");
if (state.classes.length > 0) await unlessBusy(() => show(first));
else waitForClasses();
if (state.accepted && !state.has_labels) loadWorth();
requestAnimationFrame(() => setTimeout(() => fillHelp(state, picker.searches))); // after the first sample is on the screen
