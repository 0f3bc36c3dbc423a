// What is decided in one tab is known in the others that show the same samples.

const channel = new BroadcastChannel("truthfl decisions");

export function tellOthers(edition, now) {
  channel.postMessage({ edition, now });
}

export function hearOthers(edition, apply) {
  channel.addEventListener("message", ({ data }) => {
    if (data.edition === edition) apply(data.now);
  });
}

// A page that the browser kept in the drawer shows what was true when it was put there.
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});
