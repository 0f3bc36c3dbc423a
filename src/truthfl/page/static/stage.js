// Display of one sample: the next few are loaded in advance, and a picture is zoomed into and moved by wheel, two fingers,
// double tap, and by functions for keys.

import { errorOf } from "./api.js";
import { make } from "./dom.js";

const SCREEN_PX = 2400; // pictures with more pixels on a side are sent with so many; samples/shown_pictures.py

// The server's reason why a sample cannot be read; `parts` makes texts and elements of its form.
export class UnreadableError extends Error {
  constructor({ message, form }) {
    super(message);
    this.form = form;
  }
}

export class Stage {
  constructor(container, state) {
    this.container = container;
    this.edition = state.edition;
    this.kind = state.kind;
    this.loaded = new Map(); // promises of elements, by position
  }

  // Promise of the element of a sample.
  get(at) {
    if (!this.loaded.has(at)) this.loaded.set(at, this.kind === "picture" ? this.picture(at) : this.text(at));
    return this.loaded.get(at);
  }

  // Load the samples at these positions, and forget all others.
  prepare(positions) {
    for (const at of this.loaded.keys()) if (!positions.includes(at)) this.loaded.delete(at);
    for (const at of positions) this.get(at).catch(() => {});
  }

  show(element) {
    this.container.replaceChildren(element);
  }

  address(at) {
    return `samples/${this.edition}/${at}`;
  }

  async picture(at) {
    const image = make("img", { fetchpriority: "high" });
    image.src = this.address(at);
    try {
      await image.decode();
    } catch {
      await this.loadReencoded(image, at);
    }
    image.style.setProperty("--ratio", image.naturalWidth / image.naturalHeight);
    return image;
  }

  // Replace a picture that is being zoomed into by the whole one, if it was made smaller for the screen.
  async loadWhole(image, at) {
    if (Math.max(image.naturalWidth, image.naturalHeight) < SCREEN_PX) return;
    const whole = make("img", { src: `${this.address(at)}?whole` });
    try {
      await whole.decode();
      image.src = whole.src;
    } catch {
      // the smaller one stays
    }
  }

  async text(at) {
    let response;
    try {
      response = await fetch(this.address(at));
      if (response.ok) return make("p", { class: "text", tabindex: "0", dir: "auto" }, await response.text());
    } catch (error) {
      this.loaded.delete(at);
      throw error;
    }
    this.loaded.delete(at);
    throw await responseError(response);
  }

  // Load a picture that could not be decoded again, re-encoded by the server; throw the server's error if it cannot.
  async loadReencoded(image, at) {
    image.src = `${this.address(at)}?reencoded`;
    try {
      await image.decode();
    } catch (error) {
      this.loaded.delete(at);
      const response = await fetch(image.src);
      throw response.ok ? error : await responseError(response);
    }
  }
}

async function responseError(response) {
  const error = await errorOf(response);
  return response.status === 422 && error.form ? new UnreadableError(error) : error;
}

const MOST = 16;
const DOUBLE_TAP_SCALE = 3;
const WHEEL_STEP = 0.002; // logarithm of the scale per pixel of the wheel
const PINCH_STEP = 0.01; // the same for two fingers on a touchpad
const LINE_PX = 16;
const TAP_MS = 300;
const TAP_PX = 12;
const DOUBLE_TAP_PX = 40;
const CRISP_PX = 3; // a picture whose pixels are shown at least this large is not smoothed
const SMALL_PX = 128; // the same before the size of the stage is known

// Zooming into the picture of a stage and moving it.
export class Zoom {
  // onEnlarge(picture): called when a picture is zoomed into for the first time
  constructor(container, onEnlarge = () => {}) {
    this.container = container;
    this.onEnlarge = onEnlarge;
    this.picture = null;
    this.size = { width: 0, height: 0 };
    this.pointers = new Map(); // positions of fingers or of the pressed mouse, by id
    this.lastTap = null;
    this.set(1, 0, 0);
    new ResizeObserver(([entry]) => {
      this.size = entry.contentRect;
      this.set(this.scale, this.x, this.y);
    }).observe(container);
    container.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    container.addEventListener("touchstart", (event) => this.onTouch(event), { passive: false });
    container.addEventListener("pointerdown", (event) => this.onDown(event));
    container.addEventListener("pointermove", (event) => this.onMove(event));
    for (const name of ["pointerup", "pointercancel"]) container.addEventListener(name, (event) => this.onUp(event));
  }

  // Begin with another picture, as a whole; null if what is shown cannot be zoomed.
  attach(picture) {
    this.picture = picture;
    this.enlarged = false;
    this.container.classList.toggle("zoomable", picture !== null);
    if (picture !== null) picture.draggable = false;
    this.reset();
  }

  get active() {
    return this.scale > 1;
  }

  reset() {
    this.set(1, 0, 0);
  }

  // Multiply the scale; the point, relative to the middle of the stage, stays where it is.
  by(factor, point = { x: 0, y: 0 }) {
    if (this.picture === null) return;
    const scale = Math.min(MOST, Math.max(1, this.scale * factor));
    const change = scale / this.scale;
    this.set(scale, point.x - (point.x - this.x) * change, point.y - (point.y - this.y) * change);
    if (this.active && !this.enlarged) {
      this.enlarged = true;
      this.onEnlarge(this.picture);
    }
  }

  // Move the view by shares of the stage, to the right and down.
  pan(right, down) {
    this.set(this.scale, this.x - right * this.size.width, this.y - down * this.size.height);
  }

  // Show the picture with this scale and offset, within the limits at which its edge would leave the edge of the stage.
  set(scale, x, y) {
    const shown = this.shownSize();
    const limit = (offset, length, room) => {
      const most = Math.max(0, (length * scale - room) / 2);
      return Math.min(most, Math.max(-most, offset));
    };
    this.scale = scale;
    this.x = limit(x, shown.width, this.size.width);
    this.y = limit(y, shown.height, this.size.height);
    this.container.classList.toggle("zoomed", this.active);
    if (this.picture === null) return;
    this.picture.style.transform = this.active ? `translate(${this.x}px, ${this.y}px) scale(${scale})` : "";
    this.picture.classList.toggle("crisp", this.isCrisp(shown.width));
  }

  // Width and height of the picture at scale 1.
  shownSize() {
    const ratio = this.picture === null ? 1 : this.picture.naturalWidth / this.picture.naturalHeight;
    const width = Math.min(this.size.width, this.size.height * ratio);
    return { width, height: width / ratio };
  }

  isCrisp(width) {
    const { naturalWidth, naturalHeight } = this.picture;
    if (width === 0) return Math.max(naturalWidth, naturalHeight) <= SMALL_PX;
    return (width * this.scale * devicePixelRatio) / naturalWidth >= CRISP_PX;
  }

  // A pointer's position relative to the middle of the stage.
  pointOf(event) {
    const box = this.container.getBoundingClientRect();
    return { x: event.clientX - box.left - box.width / 2, y: event.clientY - box.top - box.height / 2 };
  }

  onWheel(event) {
    if (this.picture === null) return;
    event.preventDefault();
    const pixels = event.deltaY * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE_PX : 1);
    this.by(Math.exp(-pixels * (event.ctrlKey ? PINCH_STEP : WHEEL_STEP)), this.pointOf(event));
  }

  // The browser must take no touch for a swipe: it would ignore the next tap, on a class, for a moment.
  onTouch(event) {
    if (this.picture !== null) event.preventDefault();
  }

  onDown(event) {
    if (this.picture === null || event.button > 0) return;
    this.container.setPointerCapture(event.pointerId);
    const point = this.pointOf(event);
    this.pointers.set(event.pointerId, point);
    this.began = this.pointers.size === 1 ? { ...point, time: event.timeStamp } : null;
  }

  onMove(event) {
    const before = this.pointers.get(event.pointerId);
    if (before === undefined) return;
    const now = this.pointOf(event);
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    this.pointers.set(event.pointerId, now);
    if (this.picture === null) return;
    if (other !== undefined) {
      const factor = distance(now, other) / Math.max(1, distance(before, other));
      this.by(factor, { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 });
      this.set(this.scale, this.x + (now.x - before.x) / 2, this.y + (now.y - before.y) / 2);
    } else {
      this.set(this.scale, this.x + now.x - before.x, this.y + now.y - before.y);
    }
  }

  onUp(event) {
    const point = this.pointers.get(event.pointerId);
    this.pointers.delete(event.pointerId);
    if (point === undefined || this.picture === null || event.type === "pointercancel" || !this.began) return;
    const { began } = this;
    if (distance(point, began) > TAP_PX || event.timeStamp - began.time > TAP_MS) return;
    const previous = this.lastTap;
    this.lastTap = { ...point, time: event.timeStamp, picture: this.picture };
    if (previous?.picture !== this.picture || event.timeStamp - previous.time > 2 * TAP_MS) return;
    if (distance(point, previous) > DOUBLE_TAP_PX) return;
    this.lastTap = null;
    if (this.active) this.reset();
    else this.by(DOUBLE_TAP_SCALE, point);
  }
}

function distance(one, other) {
  return Math.hypot(one.x - other.x, one.y - other.y);
}
