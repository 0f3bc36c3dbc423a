// Choice of a class: by buttons with keys and colours, or by a search where there are more classes than keys.

import { make, onPress } from "./dom.js";
import { numbersOf } from "./labels.js";
import { text } from "./text.js";

// Eight colours that the colour-blind can tell apart (Okabe and Ito), and the same eight striped, besides names and keys.
const COLOURS = 8;
const SHORT = 2; // letters; if all names are this short, the buttons are laid out as for digits
const FLASH_MS = 140;
const NO_SEARCH = " ?+=-"; // keys of the page that begin no search

// An element in the colour of a class; null if there are too many classes or it is -1, none.
export function swatch(number, classes) {
  if (number < 0 || classes.length > 2 * COLOURS) return null;
  const striped = number >= COLOURS ? " striped" : "";
  return make("span", { class: `swatch colour-${number % COLOURS}${striped}`, "aria-hidden": "true" });
}

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

// A field that filters a list as one types.
class ClassSearch {
  searches = true;

  constructor(container, classes, choose) {
    this.choose = choose;
    this.disabled = false;
    const id = `${container.id}-list`;
    this.field = make("input", { type: "text", role: "combobox", "aria-label": text("label.find_class"), "aria-controls": id, "aria-expanded": "true",
      "aria-autocomplete": "list", placeholder: text("label.find_class"), autocomplete: "off", autocapitalize: "off", spellcheck: "false",
      enterkeyhint: "done" });
    this.options = classes.map(({ name }, number) => {
      const option = make("li", { role: "option", id: `${id}-${number}`, "aria-selected": "false", dir: "auto" }, name);
      option.addEventListener("click", () => this.take(number));
      return option;
    });
    this.names = classes.map(({ name }) => simplified(name));
    this.list = make("ul", { role: "listbox", id, "aria-label": text("common.classes") });
    this.none = make("p", { role: "status" });
    container.classList.add("search");
    container.replaceChildren(this.field, this.list, this.none);
    this.field.addEventListener("input", () => this.filter());
    this.field.addEventListener("keydown", (event) => this.onKey(event));
    this.filter();
  }

  press(label) {
    const chosen = numbersOf(label);
    this.options.forEach((option, number) => option.classList.toggle("current", chosen.includes(number)));
  }

  disable(disabled) {
    this.disabled = disabled;
    this.field.disabled = disabled;
    this.list.setAttribute("aria-disabled", String(disabled));
  }

  flash() {}

  focus() {
    this.field.focus();
  }

  classOf() {
    return -1;
  }

  // Whether a key event on the page begins a search; the field then has the focus and gets the letter.
  opensBy(event) {
    if (this.disabled || event.key.length !== 1 || NO_SEARCH.includes(event.key)) return false;
    if (event.key === "/") event.preventDefault();
    this.field.focus();
    return true;
  }

  // Show the classes that have what is typed in their names, those that begin with it first.
  filter() {
    const typed = simplified(this.field.value);
    const rank = (name) => {
      if (name.startsWith(typed)) return 0;
      return name.includes(` ${typed}`) ? 1 : 2;
    };
    this.found = this.names.map((name, number) => ({ name, number })).filter(({ name }) => name.includes(typed))
      .sort((one, other) => rank(one.name) - rank(other.name) || one.number - other.number).map(({ number }) => number);
    this.list.replaceChildren(...this.found.map((number) => this.options[number]));
    this.list.hidden = this.found.length === 0;
    this.list.scrollTop = 0;
    this.field.setAttribute("aria-expanded", String(this.found.length > 0));
    this.none.textContent = this.found.length === 0 ? text("label.no_such_class") : "";
    this.select(typed === "" ? -1 : 0);
  }

  // Mark the option that Enter takes, by its place in the list; -1 for none.
  select(place) {
    this.selected = this.found.length === 0 ? -1 : place;
    this.options.forEach((option) => option.setAttribute("aria-selected", "false"));
    const option = this.options[this.found[this.selected]];
    if (option === undefined) {
      this.field.removeAttribute("aria-activedescendant");
      return;
    }
    option.setAttribute("aria-selected", "true");
    option.scrollIntoView({ block: "nearest" });
    this.field.setAttribute("aria-activedescendant", option.id);
  }

  onKey(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in steps && this.found.length > 0) {
      this.select((Math.max(this.selected, steps[event.key] < 0 ? 0 : -1) + steps[event.key] + this.found.length) % this.found.length);
    } else if (event.key === "Enter" && !event.isComposing && !event.repeat && this.selected >= 0) {
      this.take(this.found[this.selected]);
    } else if (event.key === "Escape") {
      this.clear();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  async take(number) {
    if (this.disabled || (await this.choose(number)) === false) return;
    this.clear();
  }

  clear() {
    this.field.value = "";
    this.filter();
    this.field.blur();
  }
}

// Without accents and capital letters.
function simplified(words) {
  return words.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase().replaceAll("ß", "ss").trim();
}
