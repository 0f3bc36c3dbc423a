// The bench: one sample at a time; the next one shows when the decision about this one is on the disk.

import { Refused, SILENT, ask, nonce, tellUntilHeard } from "./api.js";
import { SINGLE_KEYS, classButtons, classOfKey, flash, keyActs, onPress, press } from "./classes.js";
import { alarm, byId, make } from "./dom.js";
import { Pace } from "./pace.js";
import { Queue } from "./queue.js";
import { Stage, Unreadable } from "./stage.js";
import { hearOthers, tellOthers } from "./tabs.js";
import { watchPapers } from "./watch.js";

const AHEAD = 4;

const state = await ask("api/work").catch((error) => {
  alarm(error instanceof Refused ? error.message : SILENT);
  throw error;
});
const queue = new Queue(state);
const stage = new Stage(byId("stage"), state);
const first = queue.next(-1);
stage.prepare(first === null ? [] : [first]);
const pace = new Pace(state.pauses);
const thing = state.kind === "text" ? "Text" : "Picture";
const buttons = classButtons(byId("classes"), state.classes, (number) => alone(() => label(number)));
let current = null;
let busy = false;

// One thing at a time: what is pressed before the next sample shows was not meant for it.
async function alone(act) {
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
  const raised = queue.flagged.has(current);
  if (!(await decide(raised ? "unflag" : "flag"))) return;
  tellState(raised ? "Flag taken off." : "Flagged.");
}

async function undo() {
  const now = await send("api/undo", {});
  if (now === null) return;
  if (now.position === null) {
    say("There is nothing to undo.");
    return;
  }
  queue.apply(now);
  await show(now.position, `Undone: ${now.action}.`);
}

async function move(step) {
  const to = queue.neighbour(current ?? queue.end, step);
  if (to !== null) await show(to);
}

async function decide(action, number) {
  const said = { position: current, action };
  if (action === "label") said.label = number;
  const now = await send("api/decisions", said);
  if (now !== null) queue.apply(now);
  return now !== null;
}

async function send(path, said) {
  try {
    const now = await tellUntilHeard(path, { edition: state.edition, nonce: nonce(), ...said }, alarm);
    if (now.position !== null) tellOthers(state.edition, now);
    return now;
  } catch (error) {
    if (error.status === 409) location.reload();
    alarm(error.message);
    return null;
  }
}

function forward(words) {
  return show(queue.next(current ?? -1), words);
}

async function show(at, words = "") {
  if (at === null) return finish(words);
  let element;
  try {
    element = await stage.get(at);
  } catch (error) {
    return cannotShow(at, error);
  }
  current = at;
  byId("done").hidden = true;
  byId("stage").hidden = false;
  if (state.kind === "picture") element.alt = `Picture ${queue.numberOf(at)}`;
  stage.show(element);
  document.body.dataset.at = at;
  tellState(words);
  const around = [at, ...queue.upcoming(at, AHEAD), queue.neighbour(at, -1)].filter((one) => one !== null);
  stage.prepare(around);
  return undefined;
}

async function cannotShow(at, error) {
  if (error instanceof Unreadable) {
    queue.passOver(at, error.message);
    tellPassedOver();
    return show(queue.next(at));
  }
  if (error.status === 409) return location.reload();
  alarm(error instanceof Refused ? error.message : SILENT);
  if (error instanceof Refused) {
    current = null; // the picture that still shows is not the one that a key would be for
    return tellState("");
  }
  await new Promise((resolve) => setTimeout(resolve, 1000));
  alarm("");
  return show(at);
}

function finish(words) {
  current = null;
  delete document.body.dataset.at;
  byId("stage").hidden = true;
  byId("done").hidden = false;
  tellDone();
  tellState(`${words} All are labeled.`);
  byId("done-title").focus();
}

function tellDone() {
  const flagged = [...queue.flagged].filter((at) => at < queue.end).length;
  const things = thing.toLowerCase();
  byId("done-words").textContent = `${queue.wanted.toLocaleString("en")} ${things}${queue.wanted === 1 ? " has" : "s have"} a label` +
    `${flagged ? `, ${flagged} of them with a flag` : ""}. ` +
    whatNext();
}

function whatNext() {
  if (state.given) return "The labels came with your file, and are changed there.";
  if (state.asked === null) return "They are in labels.db.";
  if (!state.accepted) return "The offer is still to be answered; only then does the job go on.";
  if (state.asked > queue.wanted) return `The offer asks for ${state.asked.toLocaleString("en")}; there are no more here.`;
  return "Your computer takes it from here; leave truthfl running.";
}

function tellState(words) {
  const { labeled, wanted } = queue;
  byId("bar").max = Math.max(1, wanted);
  byId("bar").value = labeled;
  const left = queue.skipped.filter((at) => at < queue.end).length;
  byId("count").textContent = `${labeled.toLocaleString("en")} of ${wanted.toLocaleString("en")} labeled` +
    (left ? ` · ${left} skipped` : "");
  byId("pace").textContent = pace.words(wanted - labeled);
  const flagged = current !== null && queue.flagged.has(current);
  byId("flag").setAttribute("aria-pressed", String(flagged));
  const marks = [];
  if (flagged) marks.push("flagged");
  if (current !== null && queue.skipped.includes(current)) marks.push("skipped before");
  byId("marks").replaceChildren(...marks.map((mark) => make("span", { class: "mark" }, mark)));
  press(buttons, current === null ? -1 : queue.labels[current]);
  const fixed = current === null || state.given;
  for (const button of [byId("skip"), byId("flag"), ...buttons]) button.disabled = fixed;
  byId("undo").disabled = state.given;
  const where = current === null ? "" : ` ${thing} ${queue.numberOf(current).toLocaleString("en")} of ${wanted.toLocaleString("en")}.`;
  say(words + where);
}

function say(words) {
  byId("said").textContent = words.trim();
}

function tellPassedOver() {
  const sentences = [...state.problems, ...queue.unreadable.values()];
  const place = byId("passed");
  place.hidden = sentences.length === 0;
  place.querySelector("summary").textContent =
    `${sentences.length.toLocaleString("en")} cannot be read and ${sentences.length === 1 ? "is" : "are"} passed over`;
  place.querySelector("ul").replaceChildren(...sentences.slice(0, 200).map((why) => make("li", {}, why)));
}

function onKey(event) {
  const within = event.target instanceof Element ? event.target : document.body;
  if (byId("help").open || within.closest("input, textarea, select")) return;
  const onControl = within.closest("button, a, summary") !== null && within.matches(":focus-visible");
  if (onControl && (event.key === " " || event.key === "Enter")) return;
  const action = actionOf(event);
  if (action === null) return;
  event.preventDefault();
  alone(action);
}

function actionOf(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  const always = { ArrowLeft: () => move(-1), ArrowRight: () => move(1) };
  if (event.key in always) return always[event.key];
  if (!keyActs(event)) return null;
  const number = classOfKey(state.classes, event);
  if (state.given) return event.key === "?" ? help : null;
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
  byId("help-keys").replaceChildren(...[...list, ...tools].flatMap(([key, words]) =>
    [make("dt", {}, make("kbd", {}, key)), make("dd", {}, words)]));
  byId("single-keys").checked = localStorage.getItem(SINGLE_KEYS) !== "off";
  byId("single-keys").addEventListener("change", (event) => localStorage.setItem(SINGLE_KEYS, event.target.checked ? "on" : "off"));
}

const tools = { undo, skip, flag, "help-open": help, back: () => move(-1), forward: () => move(1) };
for (const [id, action] of Object.entries(tools)) onPress(byId(id), () => alone(action));
byId("help-close").addEventListener("click", () => byId("help").close());
document.addEventListener("keydown", onKey);
hearOthers(state.edition, (now) => {
  queue.apply(now);
  if (current === null && queue.labeled < queue.wanted) alone(() => show(queue.next(-1)));
  else tellState("");
});
watchPapers("label", async () => {
  const fresh = await ask("api/work").catch(() => state);
  if (fresh.edition !== state.edition || fresh.asked !== state.asked) location.reload();
  state.accepted = fresh.accepted;
  if (current === null) tellDone();
}, state.papers);
fillHelp();
tellPassedOver();
await alone(() => show(first));
