// Sending of decisions: each is stored by the server, applied to the queue, and told to the other tabs.

import { nonce, postUntilAnswered } from "./api.js";
import { decideOrAsk } from "./conflict.js";
import { alarm } from "./dom.js";
import { showError } from "./error_message.js";
import { broadcastDecision } from "./tabs.js";

export class Decisions {
  constructor(state, queue) {
    Object.assign(this, { state, queue });
  }

  // Each function returns the server's response, or null after an error, or if the participant keeps what another tab decided.
  decide(position, action, label) {
    const decision = { position, action, ...(action === "label" ? { label } : {}) };
    return this.answered(() => decideOrAsk(this.state, this.queue, decision));
  }

  // Give several samples the same label, or each its own list of classes; one undo takes it back for all of them.
  relabel(positions, label) {
    const seen = positions.map((at) => this.queue.labels[at]);
    return this.answered(() => this.post("api/decisions/bulk", { positions, label, seen }));
  }

  undo() {
    return this.answered(() => this.post("api/undo", {}), { undone: true });
  }

  post(path, fields) {
    return postUntilAnswered(path, { edition: this.state.edition, nonce: nonce(), ...fields }, alarm);
  }

  // more: what the other tabs are told besides the response
  async answered(request, more = {}) {
    try {
      const result = await request();
      if (result === null) return null;
      this.queue.apply(result);
      if (result.position !== null) broadcastDecision(this.state.edition, { ...result, ...more });
      return result;
    } catch (error) {
      for (const current of error.conflict ?? []) this.queue.apply(current);
      if (error.status === 409 && !error.conflict) location.reload();
      showError(error);
      return null;
    }
  }
}
