// What the classes mean, as the operator says it: in a dialog while labeling, and on the offer before it is answered.

import { getJson, showError } from "./api.js";
import { byId, make } from "./dom.js";
import { text } from "./text.js";

// Fill the section of the offer; it stays hidden if nothing is said about the classes.
export async function showInstructions() {
  const given = await getJson("api/instructions");
  byId("instructions").hidden = !given.given;
  const told = given.classes.filter(({ description, examples }) => description || examples.length);
  byId("instructions-body").replaceChildren(...elements(given.text, told.map((one) => ({ ...one, key: null }))));
}

// Open the dialog; what it shows is loaded each time, since a new offer may say something else.
export async function openInstructions() {
  try {
    const given = await getJson("api/instructions");
    byId("instructions-body").replaceChildren(...elements(given.text, given.classes));
  } catch (error) {
    showError(error);
    return;
  }
  byId("instructions").showModal();
  byId("instructions").scrollTop = 0;
}

// Let the dialog be closed by its button and by the key that opens it; Escape closes every dialog.
export function prepareDialog() {
  const dialog = byId("instructions");
  byId("instructions-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "i" || event.ctrlKey || event.metaKey || event.altKey) return;
    event.stopPropagation(); // or it would be opened again
    event.preventDefault();
    dialog.close();
  });
}

function elements(general, classes) {
  const words = general ? [make("p", { class: "told", dir: "auto" }, general)] : [];
  return [...words, make("ul", { class: "described" }, ...classes.map(described))];
}

function described({ name, key, description, examples }) {
  const keyLabel = key ? make("kbd", {}, key) : null;
  return make("li", {},
    make("h3", {}, keyLabel, make("span", { dir: "auto" }, name)),
    description ? make("p", { class: "told", dir: "auto" }, description) : null,
    examples.length ? make("ul", { class: "examples" }, ...examples.map((one, at) => make("li", {}, example(one, name, at + 1)))) : null);
}

function example({ picture, text: words }, name, number) {
  if (picture !== null) return make("img", { src: picture, alt: text("instructions.example", { number, name }), loading: "lazy" });
  if (words !== null) return make("p", { class: "told", dir: "auto" }, words);
  return make("p", { class: "lost" }, text("instructions.lost"));
}
