// Exchange of decisions between tabs that show the same edition.

const channel = new BroadcastChannel("truthfl decisions");

// result: the server's response to a decision
export function broadcastDecision(edition, result) {
  channel.postMessage({ edition, result });
}

export function onBroadcastDecision(edition, apply) {
  channel.addEventListener("message", ({ data }) => {
    if (data.edition === edition) apply(data.result);
  });
}

// A page from the browser's back/forward cache may be out of date.
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});
