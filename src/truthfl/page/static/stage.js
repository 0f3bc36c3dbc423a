// Samples, fetched before they are wanted and shown at once. Only a few are held.

import { CLOSED, Refused, sentenceOf } from "./api.js";
import { make } from "./dom.js";

export class Unreadable extends Error {}

export class Stage {
  constructor(place, state) {
    this.place = place;
    this.edition = state.edition;
    this.kind = state.kind;
    this.held = new Map();
  }

  // The element that shows a sample, once it is ready.
  get(at) {
    if (!this.held.has(at)) this.held.set(at, this.kind === "text" ? this.text(at) : this.picture(at));
    return this.held.get(at);
  }

  // Hold these, and nothing else.
  prepare(positions) {
    for (const at of this.held.keys()) if (!positions.includes(at)) this.held.delete(at);
    for (const at of positions) this.get(at).catch(() => {});
  }

  show(element) {
    this.place.replaceChildren(element);
  }

  address(at) {
    return `samples/${this.edition}/${at}`;
  }

  async picture(at) {
    const image = make("img", { fetchpriority: "high" }); // it is looked at, or next
    image.src = this.address(at);
    try {
      await image.decode();
    } catch {
      await this.reencoded(image, at);
    }
    image.style.setProperty("--ratio", image.naturalWidth / image.naturalHeight);
    return image;
  }

  async text(at) {
    let response;
    try {
      response = await fetch(this.address(at));
      if (response.ok) return make("p", { class: "text", tabindex: "0", dir: "auto" }, await response.text());
    } catch (error) {
      this.held.delete(at);
      throw error;
    }
    this.held.delete(at);
    throw await refusal(response);
  }

  // A picture that did not come, or of a kind that this browser does not know: as a plain one, or why not.
  async reencoded(image, at) {
    image.src = `${this.address(at)}?reencoded`;
    try {
      await image.decode();
    } catch (error) {
      this.held.delete(at);
      const response = await fetch(image.src);
      throw response.ok ? error : await refusal(response);
    }
  }
}

async function refusal(response) {
  if (response.status === 403) return new Refused(403, CLOSED);
  const sentence = await sentenceOf(response);
  return response.status === 422 ? new Unreadable(sentence) : new Refused(response.status, sentence);
}
