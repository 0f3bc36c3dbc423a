// An invitation that was just made: to copy or to save, and then forgotten. The page keeps nothing of it.

import { timeOf } from "./amounts.js";
import { byId } from "./dom.js";

let file = ""; // URL of the invitation as a file; "" if none is shown

export function showInvitation({ name, line, text, expires }) {
  file = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const fileName = `${name}.invitation`;
  byId("invited-title").textContent = `An invitation for ${name}`;
  byId("invited-words").textContent = `It is good once, until ${timeOf(expires)}, and it is not shown again. Whoever uses it first takes part ` +
    `as ${name}, so send it by a way that you both trust. They join with the file, or paste the line into the second command:`;
  byId("invited-commands").textContent = `truthfl join ${fileName} --data THEIR-DATA\ntruthfl join - --data THEIR-DATA`;
  byId("invited-line").value = line;
  Object.assign(byId("invited-save"), { href: file, download: fileName });
  byId("invited-done").textContent = "";
  byId("invited").showModal();
  byId("invited-copy").focus();
}

async function copied() {
  const line = byId("invited-line");
  line.select();
  try {
    await navigator.clipboard.writeText(line.value);
    return true;
  } catch {
    return document.execCommand("copy"); // where a browser has no other way
  }
}

byId("invited-copy").addEventListener("click", async () => {
  byId("invited-done").textContent = await copied() ? "Copied." : "It could not be copied; the line is marked: copy it yourself.";
});
byId("invited-close").addEventListener("click", () => byId("invited").close());
byId("invited").addEventListener("close", () => {
  URL.revokeObjectURL(file);
  file = "";
  byId("invited-line").value = "";
  byId("invited-save").removeAttribute("href");
});
