// Elements of a page, made without HTML strings, so that no text from a file or an offer is parsed as HTML; and buttons.

const SVG = "http://www.w3.org/2000/svg";

let busy = false; // whether an action is running

export function byId(id) {
  return document.getElementById(id);
}

// A new HTML element.
export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

// A new SVG element.
export function draw(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Fill a <dl> with entries [term, value or values, CSS class].
export function pairs(list, entries) {
  list.replaceChildren(...entries.map(([term, value, kind]) =>
    make("div", { class: kind }, make("dt", {}, term), make("dd", {}, ...[value].flat()))));
}

// Show an error message, or hide it if it is "". message: a text, or texts and elements
export function alarm(message) {
  const element = byId("alarm");
  element.replaceChildren(...[message].flat());
  element.hidden = message === "";
}

// Call act on a click. A button that was clicked or tapped loses the focus: the space key would press it again.
export function onPress(button, act) {
  button.addEventListener("click", (event) => {
    if (event.detail > 0) button.blur();
    act();
  });
}

// Run an action unless another one is running; return whether it ran. What is asked for meanwhile, by a key or a button, is
// ignored.
export async function unlessBusy(act) {
  if (busy) return false;
  busy = true;
  try {
    await act();
    return true;
  } finally {
    busy = false;
  }
}
