// The dialog that lists the keys and switches single keys off.

import { SINGLE_KEYS, singleKeysOn } from "./classes.js";
import { byId, make } from "./dom.js";
import { text } from "./text.js";

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
