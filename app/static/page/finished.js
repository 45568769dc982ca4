// The last finished run of each tab that shows its runs in frames: the browser keeps its last frame, packed, and what
// the run was made with, and the tab shows it again when the page is opened anew. Where there is too little room for all, the oldest gives way.
const FRAME = "frame-", FULL = "QuotaExceededError";
const unkept = (figures, large) => {
  const says = document.querySelector(`.ll-figures[data-name=${figures}] .ll-unkept span`);
  if (says) says.hidden = !large;
};
async function keepFrame({ place, figures, most, version }, frame) {
  try {
    const packed = await through(JSON.stringify(frame), new CompressionStream("gzip"));
    const kept = packed.byteLength <= most && await fitted(place, { version, packed, at: Date.now(), made: formOf(place).made });
    if (!kept) await store("readwrite", (runs) => runs.delete(FRAME + place));
    unkept(figures, !kept);
  } catch { /* The browser forbids it. */ }
}
// Of the frame that is kept there; one that comes later knows it already.
function keepMade(place, made) {
  const changes = (runs) => {
    const kept = runs.get(FRAME + place);
    kept.onsuccess = () => kept.result && runs.put({ ...kept.result, made }, FRAME + place);
    return kept;
  };
  store("readwrite", changes).catch(() => null);
}
async function fitted(place, frame) {
  try {
    await store("readwrite", (runs) => runs.put(frame, FRAME + place));
    return true;
  } catch (error) {
    if (error?.name !== FULL) throw error;
    return await oldestGoes(place) && fitted(place, frame);
  }
}
// Whether there was another that could go.
async function oldestGoes(place) {
  const names = (await store("readonly", (runs) => runs.getAllKeys())).filter((name) => name.startsWith(FRAME));
  const others = names.filter((name) => name !== FRAME + place);
  const frames = await Promise.all(others.map(async (name) => [name, await store("readonly", (runs) => runs.get(name))]));
  const [oldest] = frames.sort(([, one], [, two]) => one.at - two.at);
  if (oldest) await store("readwrite", (runs) => runs.delete(oldest[0]));
  return Boolean(oldest);
}
// The frame that a tab opens with, and what it was made with; a link asks for a run of its own. Only the script that drew it can draw it again.
async function keptFrame({ place, version }) {
  if (!place || (await linkedForms)?.[place]) return null;
  try {
    const kept = await store("readonly", (runs) => runs.get(FRAME + place));
    if (kept?.version !== version) return null;
    const frame = reduced(new TextDecoder().decode(await through(kept.packed, new DecompressionStream("gzip"))));
    return frame && { frame, made: kept.made };
  } catch { return null; }
}
