// Actions of which one at a time runs on a page: what is asked for meanwhile, by a key or a button, is ignored.

let busy = false;

// Run an action unless another one is running; return whether it ran.
export async function unlessBusy(act) {
  if (busy) return false;
  busy = true;
  try {
    await act();
    return true;
  } finally {
    busy = false;
  }
}
