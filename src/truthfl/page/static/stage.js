// Display of one sample; the next few are loaded in advance.

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
