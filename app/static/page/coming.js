// Says how far a model has come while it is being loaded, in the line that at last says what it is. A model that is there
// is described at once, so the line waits a moment before it says anything else.
const SOON = 300, OFTEN = 1000;
const pauses = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const awaited = new Map();
let comings = 0;
async function coming(note, model, precision) {
  const line = () => document.querySelector(`#${note} [role=status]`), own = String(++comings);
  if (!line()) return;
  awaited.set(note, own);
  const { textContent: before, dataset: { state } } = line();
  const asked = new URLSearchParams({ model, precision });
  for (let wait = SOON; ; wait = OFTEN) {
    await pauses(wait);
    const words = await fetch(`lab/coming?${asked}`).then((answer) => answer.json()).catch(() => null);
    const now = line(), owned = now?.dataset.coming === own;
    // What describes the model has put a line of its own there, or another has been chosen since.
    if (!now || awaited.get(note) !== own || (!owned && now.textContent !== before)) return;
    if (words || owned) {
      now.textContent = words ?? before;
      Object.assign(now.dataset, { state: words ? "busy" : state, coming: own });
    }
    if (!words) return;
  }
}
