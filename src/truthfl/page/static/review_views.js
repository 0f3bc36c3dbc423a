// The two views of the review: a grid of small views, of which one has the focus and several can be selected, and the
// dialog that shows one sample large, to look at it closely and to give it another label.

import { errorWords } from "./api.js";
import { classPicker } from "./classes.js";
import { byId, make } from "./dom.js";
import { lookAction } from "./keys.js";
import { Stage, Zoom } from "./stage.js";
import { text } from "./text.js";

const PAGE_SIZE = 120;
const MOST_SELECTED = 4000; // so that a request about them is not too long

// A grid of small views: one has the focus, several can be selected.
export class ReviewGrid {
  // titleOf(at): of a sample; noteOf(at): what is written on its small view, or ""; onOpen(at), onSelect(): callbacks
  constructor(state, queue, { titleOf, noteOf, onOpen, onSelect }) {
    Object.assign(this, { state, queue, titleOf, noteOf, onOpen, onSelect });
    this.list = byId("grid");
    this.positions = [];
    this.selected = new Set();
    this.anchor = 0; // where a range of the selection begins
    this.selecting = false; // whether a click selects
    this.list.classList.toggle("texts", state.kind !== "picture");
    this.list.addEventListener("click", (event) => this.onClick(event));
    byId("more").addEventListener("click", () => this.showMore());
  }

  show(positions) {
    this.positions = positions;
    this.clear();
    this.list.replaceChildren();
    this.list.hidden = positions.length === 0;
    this.showMore();
  }

  showMore() {
    const shown = this.list.children.length;
    const next = this.positions.slice(shown, shown + PAGE_SIZE);
    this.list.append(...next.map((at, i) => make("li", { role: "presentation" }, this.view(at, shown + i === 0))));
    const left = this.positions.length - shown - next.length;
    byId("more").hidden = left === 0;
    byId("more").textContent = text("review.more", { count: Math.min(PAGE_SIZE, left) });
  }

  view(at, first) {
    const picture = this.state.kind === "picture";
    const address = `thumbs/${this.state.edition}/${at}`;
    const view = make("button", { type: "button", role: "option", "aria-selected": "false", "data-at": at, tabindex: first ? "0" : "-1",
      dir: picture ? null : "auto" });
    if (picture) view.append(make("img", { src: address, alt: "", loading: "lazy", width: 80, height: 80 }));
    else fetch(address).then((response) => response.text()).then((words) => view.prepend(words), () => {});
    this.mark(view, at);
    return view;
  }

  // Update what is written on the small view of a sample.
  mark(view, at) {
    for (const old of view.querySelectorAll(".note, .flag")) old.remove();
    const note = this.noteOf(at);
    const flagged = this.queue.flagged.has(at);
    if (note !== "") view.append(make("span", { class: "note", dir: "auto" }, note));
    if (flagged) view.append(make("span", { class: "flag", "aria-hidden": "true" }, "⚑"));
    view.setAttribute("aria-label", [this.titleOf(at), note, flagged ? text("common.flagged") : ""].filter(Boolean).join(", "));
  }

  refresh() {
    for (const view of this.views()) this.mark(view, Number(view.dataset.at));
  }

  views() {
    return [...this.list.querySelectorAll("button")];
  }

  viewAt(at) {
    return this.list.querySelector(`[data-at="${at}"]`);
  }

  focus(at) {
    this.viewAt(at)?.focus();
  }

  clear() {
    this.selecting = false;
    this.select(new Set());
  }

  select(positions) {
    this.selected = new Set([...positions].slice(0, MOST_SELECTED));
    for (const view of this.views()) view.setAttribute("aria-selected", String(this.selected.has(Number(view.dataset.at))));
    this.onSelect();
  }

  toggle(place) {
    const at = this.positions[place];
    this.anchor = place;
    this.select(this.selected.has(at) ? [...this.selected].filter((one) => one !== at) : [...this.selected, at]);
  }

  // Select all between the anchor and this place of the grid, besides those selected before.
  extend(place) {
    const [from, to] = [Math.min(this.anchor, place), Math.max(this.anchor, place)];
    this.select(new Set([...this.selected, ...this.positions.slice(from, to + 1)]));
  }

  onClick(event) {
    const view = event.target.closest("button");
    if (view === null) return;
    const at = Number(view.dataset.at);
    const place = this.positions.indexOf(at);
    this.rove(view);
    if (event.shiftKey) this.extend(place);
    else if (event.ctrlKey || event.metaKey || this.selecting || (this.selected.size > 0 && event.detail > 0)) this.toggle(place);
    else this.onOpen(at);
  }

  // Make this the view that has the place in the order of the Tab key.
  rove(view) {
    for (const other of this.list.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
    view.tabIndex = 0;
  }

  // Whether the key moved the focus or changed the selection.
  takesKey(event) {
    const all = this.views();
    const here = all.indexOf(event.target);
    if (here < 0 || event.altKey) return false;
    if (event.ctrlKey || event.metaKey) {
      if (event.key.toLowerCase() !== "a") return false;
      this.select(this.positions);
      return true;
    }
    if (event.key === " ") this.toggle(here);
    else if (event.key === "Escape" && (this.selecting || this.selected.size > 0)) this.clear();
    else return this.move(event, all, here);
    return true;
  }

  move(event, all, here) {
    const columns = all.findIndex((view) => view.offsetTop > all[0].offsetTop);
    const row = columns > 0 ? columns : 1;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -row, ArrowDown: row, Home: -here, End: all.length - 1 - here };
    if (!(event.key in steps)) return false;
    const to = here + steps[event.key];
    if (to < 0 || to >= all.length) return true;
    this.rove(all[to]);
    all[to].focus();
    if (event.shiftKey) {
      if (this.selected.size === 0) this.anchor = here;
      this.extend(to);
    }
    return true;
  }
}

// A dialog.
export class LargeView {
  // titleOf(at), aboutOf(at): texts; onLabel(at, number), onFlag(at), onClose(at): callbacks
  constructor(state, queue, { titleOf, aboutOf }, { onLabel, onFlag, onClose }) {
    Object.assign(this, { state, queue, titleOf, aboutOf });
    this.at = null;
    this.stage = new Stage(byId("large-stage"), state);
    this.zoom = new Zoom(byId("large-stage"), (picture) => this.stage.loadWhole(picture, this.at));
    this.picker = classPicker(byId("large-classes"), state.classes, (number) => onLabel(this.at, number));
    this.picker.disable(state.has_labels);
    byId("large").addEventListener("close", () => onClose(this.at));
    byId("large-close").addEventListener("click", () => this.close());
    byId("large-flag").addEventListener("click", () => onFlag(this.at));
  }

  get isOpen() {
    return byId("large").open;
  }

  close() {
    if (this.isOpen) byId("large").close();
  }

  async open(at) {
    this.at = at;
    byId("large-title").textContent = this.titleOf(at);
    this.update();
    this.zoom.attach(null);
    byId("large-stage").replaceChildren();
    byId("large").showModal();
    if (!this.picker.searches) this.picker.focus(this.queue.labels[at]);
    try {
      const element = await this.stage.get(at);
      if (this.state.kind === "picture") element.alt = byId("large-title").textContent;
      this.stage.prepare([at]);
      if (this.at !== at) return;
      this.zoom.attach(this.state.kind === "picture" ? element : null);
      this.stage.show(element);
    } catch (error) {
      byId("large-stage").replaceChildren(make("p", {}, ...errorWords(error)));
    }
  }

  // Show the sample's present label and flag.
  update() {
    if (this.at === null) return;
    const about = this.aboutOf(this.at);
    byId("large-about").textContent = about;
    byId("large-about").hidden = about === "";
    this.picker.press(this.queue.labels[this.at]);
    byId("large-flag").setAttribute("aria-pressed", String(this.queue.flagged.has(this.at)));
  }

  // Whether the key was one for looking at the sample.
  takesKey(event) {
    const look = lookAction(event, this.zoom, byId("large-stage"), this.state.classes);
    look?.();
    return look !== null;
  }
}
