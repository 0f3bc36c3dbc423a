// Buttons and keyboard shortcuts of the classes.

import { make } from "./dom.js";

export const SINGLE_KEYS = "truthfl single keys";
const SHORT = 2; // letters; if all names are this short, the buttons are laid out as for digits

// Fill the container with a button per class; choose(number) is called when one is pressed.
export function classButtons(container, classes, choose) {
  const buttons = classes.map(({ name, key }, number) => {
    const keyLabel = key && key !== name ? make("kbd", { "aria-hidden": "true" }, key) : null;
    const button = make("button", { type: "button", "aria-pressed": "false", "aria-keyshortcuts": key },
      keyLabel, make("span", { class: "name", dir: "auto" }, name));
    onPress(button, () => choose(number));
    return button;
  });
  container.classList.toggle("short", classes.length <= 10 && classes.every(({ name }) => name.length <= SHORT));
  container.replaceChildren(...buttons);
  return buttons;
}

// Call act on a click. A button that was clicked or tapped loses the focus: the space key would press it again.
export function onPress(button, act) {
  button.addEventListener("click", (event) => {
    if (event.detail > 0) button.blur();
    act();
  });
}

// Show one button as pressed; -1 for none.
export function press(buttons, chosen) {
  buttons.forEach((button, number) => button.setAttribute("aria-pressed", String(number === chosen)));
}

export function flash(button) {
  button.classList.add("chosen");
  setTimeout(() => button.classList.remove("chosen"), 140);
}

// Whether a key event may be a shortcut: without modifiers, not repeated, and shortcuts are not switched off.
export function isShortcut(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return false;
  return localStorage.getItem(SINGLE_KEYS) !== "off";
}

// Number of the class with this key, or -1.
export function classOfKey(classes, event) {
  if (event.key.length !== 1) return -1;
  return classes.findIndex(({ key }) => key === event.key.toLowerCase());
}
