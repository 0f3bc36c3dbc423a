// The dialog that shows one sample of the review large, to look at it closely and to give it another label.

import { classPicker } from "./classes.js";
import { byId, make } from "./dom.js";
import { errorWords } from "./error_message.js";
import { lookAction } from "./look_keys.js";
import { Stage } from "./stage.js";
import { Zoom } from "./zoom.js";

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
