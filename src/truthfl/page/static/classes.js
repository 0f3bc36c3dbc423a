// Choice of a class: by buttons with keyboard shortcuts, or by a search where there are more classes than keys.

import { ClassSearch } from "./class_search.js";
import { swatch } from "./class_colours.js";
import { make } from "./dom.js";
import { numbersOf } from "./label_value.js";

export const SINGLE_KEYS = "truthfl single keys";
const SHORT = 2; // letters; if all names are this short, the buttons are laid out as for digits
const FLASH_MS = 140;

// Fill the container with a way to choose a class; choose(number) is called when one is chosen.
export function classPicker(container, classes, choose) {
  if (classes.every(({ key }) => key !== null)) return new ClassButtons(container, classes, choose);
  return new ClassSearch(container, classes, choose);
}

class ClassButtons {
  searches = false;

  constructor(container, classes, choose) {
    this.classes = classes;
    this.buttons = classes.map(({ name, key }, number) => {
      const keyLabel = key !== name ? make("kbd", { "aria-hidden": "true" }, key) : null;
      const button = make("button", { type: "button", "aria-pressed": "false", "aria-keyshortcuts": key },
        swatch(number, classes), keyLabel, make("span", { class: "name", dir: "auto" }, name));
      onPress(button, () => choose(number));
      return button;
    });
    const short = classes.length <= 10 && classes.every(({ name }) => name.length <= SHORT);
    container.classList.toggle("short", short);
    container.classList.toggle("up-to-five", classes.length <= 5 && !short);
    container.classList.toggle("up-to-ten", classes.length <= 10 && !short);
    container.replaceChildren(...this.buttons);
  }

  // Show the class or classes of the sample.
  press(label) {
    const chosen = numbersOf(label);
    this.buttons.forEach((button, number) => button.setAttribute("aria-pressed", String(chosen.includes(number))));
  }

  disable(disabled) {
    for (const button of this.buttons) button.disabled = disabled;
  }

  // Show for a moment that a class was chosen.
  flash(number) {
    const button = this.buttons[number];
    button.classList.add("chosen");
    setTimeout(() => button.classList.remove("chosen"), FLASH_MS);
  }

  focus(label) {
    this.buttons[numbersOf(label)[0] ?? 0].focus();
  }

  // Number of the class that a key event chooses, or -1.
  classOf(event) {
    if (event.key.length !== 1) return -1;
    return this.classes.findIndex(({ key }) => key === event.key.toLowerCase());
  }
}

// Call act on a click. A button that was clicked or tapped loses the focus: the space key would press it again.
export function onPress(button, act) {
  button.addEventListener("click", (event) => {
    if (event.detail > 0) button.blur();
    act();
  });
}

// Whether keys without modifiers are shortcuts; they can be switched off.
export function singleKeysOn() {
  return localStorage.getItem(SINGLE_KEYS) !== "off";
}

// Whether a key event may be a shortcut: without modifiers, not repeated, and shortcuts are not switched off.
export function isShortcut(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return false;
  return singleKeysOn();
}
