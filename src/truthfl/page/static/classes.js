// A button per class, with its key.

import { make } from "./dom.js";

export const SINGLE_KEYS = "truthfl single keys";
const SHORT = 2; // letters up to which names are shown as digits are

export function classButtons(place, classes, choose) {
  const buttons = classes.map(({ name, key }, number) => {
    const cap = key && key !== name ? make("kbd", { "aria-hidden": "true" }, key) : null;
    const button = make("button", { type: "button", "aria-pressed": "false", "aria-keyshortcuts": key },
      cap, make("span", { class: "name", dir: "auto" }, name));
    onPress(button, () => choose(number));
    return button;
  });
  place.classList.toggle("short", classes.length <= 10 && classes.every(({ name }) => name.length <= SHORT));
  place.replaceChildren(...buttons);
  return buttons;
}

// A button that was clicked or tapped does not keep the focus: the space key would press it again.
export function onPress(button, act) {
  button.addEventListener("click", (event) => {
    if (event.detail > 0) button.blur();
    act();
  });
}

export function press(buttons, chosen) {
  buttons.forEach((button, number) => button.setAttribute("aria-pressed", String(number === chosen)));
}

export function flash(button) {
  button.classList.add("chosen");
  setTimeout(() => button.classList.remove("chosen"), 140);
}

// Keys with modifiers are the browser's; of a key that is held down, only the first counts; she may switch them off.
export function keyActs(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return false;
  return localStorage.getItem(SINGLE_KEYS) !== "off";
}

// The class of a key, or -1.
export function classOfKey(classes, event) {
  if (event.key.length !== 1) return -1;
  return classes.findIndex(({ key }) => key === event.key.toLowerCase());
}
