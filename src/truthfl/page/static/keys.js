// Keys of the pages with samples: shortcuts, keys for looking at a sample, and the dialog that lists them all.

import { byId, make } from "./dom.js";
import { text } from "./text.js";

const SINGLE_KEYS = "truthfl single keys";
const ZOOM_STEP = 1.5;
const PAN_STEP = 0.2; // of the width or height of the stage
const LINES_PX = 80;
const PAGE = 0.9; // of the visible height of a text
const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// Whether keys without modifiers are shortcuts; they can be switched off.
export function singleKeysOn() {
  return localStorage.getItem(SINGLE_KEYS) !== "off";
}

// Whether a key event may be a shortcut: without modifiers, not repeated, and shortcuts are not switched off.
export function isShortcut(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return false;
  return singleKeysOn();
}

// The function that a key calls, or null if it is no such key now.
// zoom: of the stage `container`; classes: their keys are not for looking
export function lookAction(event, zoom, container, classes) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  const words = container.querySelector(".text");
  if (words !== null) return scrollAction(event.key, words);
  if (zoom.picture === null) return null;
  const direction = DIRECTIONS[event.key];
  if (direction !== undefined && (event.shiftKey || zoom.active)) return () => zoom.pan(...direction.map((step) => step * PAN_STEP));
  if (event.key === "Escape" && zoom.active) return () => zoom.reset();
  if (!singleKeysOn() || classes.some(({ key }) => key === event.key)) return null;
  if (event.key === "+" || event.key === "=") return () => zoom.by(ZOOM_STEP);
  if (event.key === "-") return () => zoom.by(1 / ZOOM_STEP);
  const searches = classes.some(({ key }) => key === null); // then digits begin a search
  return event.key === "0" && !searches ? () => zoom.reset() : null;
}

// Zoom one step in or out.
export function zoomStep(zoom, inwards) {
  zoom.by(inwards ? ZOOM_STEP : 1 / ZOOM_STEP);
}

function scrollAction(key, words) {
  const page = PAGE * words.clientHeight;
  const steps = { ArrowUp: -LINES_PX, ArrowDown: LINES_PX, PageUp: -page, PageDown: page, Home: -words.scrollHeight, End: words.scrollHeight };
  return key in steps ? () => words.scrollBy({ top: steps[key] }) : null;
}

// state: of the work; searches: whether classes are found by typing
export function fillHelp({ classes, kind, several, has_instructions: instructions }, searches) {
  const own = classes.filter(({ key }) => key !== null).map(({ name, key }) => [key, name]);
  const list = own.length > 10 && own.every(([key, name]) => key === name) ? [] : own;
  const rows = [...list, ...(searches ? [["/", text("label.help_search")]] : []), ...(several ? [[text("label.key_enter"), text("label.help_confirm")]] : []),
    ...toolRows(searches),
    ...(kind === "picture" ? zoomRows(classes) : [["↑ ↓", text("label.help_scroll")]]),
    ...(instructions && !searches ? [["i", text("label.help_instructions")]] : []), ["?", text("label.help_help")]];
  byId("help-keys").replaceChildren(...rows.flatMap(([key, meaning]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, meaning)]));
  byId("single-keys").checked = singleKeysOn();
  byId("single-keys").addEventListener("change", (event) => localStorage.setItem(SINGLE_KEYS, event.target.checked ? "on" : "off"));
  byId("help-close").addEventListener("click", () => byId("help").close());
}

function toolRows(searches) {
  const rows = [[text("label.key_space"), text("label.help_skip")], [text("label.key_backspace"), text("label.help_undo")],
    ["← →", text("label.help_move")]];
  return searches ? rows : [...rows, ["f", text("label.help_flag")]];
}

function zoomRows(classes) {
  const reset = classes.some(({ key }) => key === "0" || key === null) ? text("label.key_escape") : `0 ${text("label.key_escape")}`;
  return [["+ −", text("label.help_zoom")], [reset, text("label.help_whole")], ["← ↑ → ↓", text("label.help_pan")]];
}
