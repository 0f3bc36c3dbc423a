// Talking to the server on this machine. Whoever asks gets an answer, or a Refused with one sentence.

const AGAIN_AFTER = 1000;

let csrf = "";

export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

export const CLOSED = "This page was closed. Open the link that truthfl printed where it was started; what had a label here has it there.";
export const SILENT = "The page’s server does not answer. What you decided before is kept; this last decision is sent again until it " +
  "does. If truthfl was stopped, start it again and go on, with this one, in the page that it opens.";

export async function ask(path) {
  const answer = await read(await fetch(path));
  if (answer.csrf) csrf = answer.csrf;
  return answer;
}

export async function tell(path, said) {
  return read(await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json", "x-truthfl": csrf },
    body: JSON.stringify(said),
  }));
}

// Sends the same thing again, with the same nonce, until it is heard; the server writes it down once.
export async function tellUntilHeard(path, said, onSilence) {
  for (;;) {
    try {
      const answer = await tell(path, said);
      onSilence("");
      return answer;
    } catch (error) {
      if (error instanceof Refused) throw error;
      onSilence(SILENT);
      await new Promise((resolve) => setTimeout(resolve, AGAIN_AFTER));
    }
  }
}

export function nonce() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export async function sentenceOf(response) {
  const { error } = await response.json().catch(() => ({}));
  return error ?? "Something went wrong on this machine; where truthfl was started, it says what. All decisions are kept.";
}

async function read(response) {
  if (response.ok) return response.json();
  if (response.status === 403) throw new Refused(403, CLOSED);
  throw new Refused(response.status, await sentenceOf(response));
}
