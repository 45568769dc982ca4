// Says how far a model has come while it is being loaded, in the line that at last says what it is. The lab may begin to
// load it a moment after it was chosen, and what describes it puts a line of its own there.
const SOON = 300, OFTEN = 1000, LOOKS = 60, LAST_LOOKS = 3;
const pauses = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const awaited = new Map();
let comings = 0;
async function coming(note, model, precision) {
  const own = String(++comings), asked = new URLSearchParams({ model, precision });
  const line = () => document.querySelector(`#${note} [role=status]`);
  const says = (now, words, state) => {
    // Who only hears the page hears that it began, and what describes the model.
    if (now.dataset.coming) now.setAttribute("aria-live", "off");
    if (now.textContent !== inLanguage(words)) now.textContent = words;
    Object.assign(now.dataset, { state, coming: own });
  };
  const start = line()?.textContent;
  let before = null, gone = 0;
  awaited.set(note, own);
  for (let looks = LOOKS, wait = SOON; looks && awaited.get(note) === own; wait = OFTEN) {
    await pauses(wait);
    const words = await fetch(`lab/coming?${asked}`).then((answer) => answer.json()).catch(() => undefined);
    const now = line();
    if (!now || awaited.get(note) !== own) return;
    // Nothing new where the lab did not answer.
    if (words === undefined) continue;
    const owned = now.dataset.coming === own;
    if (words) {
      if (!now.dataset.coming) before = { words: english(now), state: now.dataset.state };
      says(now, words, "busy");
      [looks, gone] = [LOOKS, 0];
    } else if (owned && ++gone > 1) {
      // What describes it has the words that stood there before, and the page has put no new line there.
      if (before) says(now, before.words, before.state);
      return;
    } else if (!owned) {
      // It may be described, or the one that was chosen before it, which it waits for.
      const stands = now.dataset.coming || now.textContent === start;
      looks = before ? 0 : Math.min(looks, stands ? LOOKS : LAST_LOOKS) - 1;
    }
  }
}
