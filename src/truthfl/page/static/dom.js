// Elements without markup in strings: nothing that comes from a file or an offer is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

export function byId(id) {
  return document.getElementById(id);
}

export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

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

export function pairs(list, entries) {
  list.replaceChildren(...entries.map(([term, value, kind]) =>
    make("div", { class: kind }, make("dt", {}, term), make("dd", {}, ...[value].flat()))));
}

export function alarm(sentence) {
  const place = byId("alarm");
  place.textContent = sentence;
  place.hidden = sentence === "";
}
