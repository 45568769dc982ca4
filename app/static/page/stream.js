// What a stream brings, by name: kept until the component of that name is there, then handed to it.
const receivers = new Map(), kept = new Map();
let underway = false;
// While a run writes no other answer can be chosen, which would take its place.
function goes(running) {
  underway = running;
  for (const input of document.querySelectorAll(".ll-branches input")) input.disabled = running;
}
function deliver(name, value, running = false) {
  const receive = receivers.get(name);
  if (receive) receive(value, running); else kept.set(name, value);
}
function receives(name, receive, props, watch) {
  receivers.set(name, receive);
  const own = () => { const value = reduced(props?.value); if (value) receive(value, false, true); };
  watch?.("value", own);
  if (kept.has(name)) { receive(kept.get(name), false); kept.delete(name); } else own();
}
// The name of the run's stream that this page follows, which a page loaded anew takes up.
const UNDER_WAY = "length-lab-run";
const underWay = () => stored("sessionStorage", UNDER_WAY) ?? "";
// Says to who only hears the page that writing began, once a run. How it ended is said by what shows it.
let writes = false;
function begins(running, texts) {
  const before = writes;
  writes = running && (before || Object.values(texts).some(([known, more]) => known + more.length > 1));
  const heard = document.querySelector(".ll-heard");
  if (heard && writes !== before) heard.textContent = writes ? "Writing began." : "";
}
// Of each stream whose runs the browser keeps, by the figures that say how they go: keeps what a run has shown that a
// cut connection ended, with the words that say so.
const cutShort = new Map();
// Figures and lanes of a run that writes no more.
const NOT_GOING = { end: "–", speed: "–", setting: "–", left: "–" };
function rested(part, said) {
  if (part?.state === "busy") return { ...part, ...NOT_GOING, ...said };
  const still = (lane) => (lane.state === "busy" ? { ...lane, state: "" } : lane);
  return part?.lanes ? { ...part, lanes: part.lanes.map(still) } : part;
}
// Hands out frames: one that Gradio brings, or those of the stream it names, until it brings the last one.
function stream(element, props, watch, keeps) {
  let source = null, following = "", news = false, whole = null;
  const shows = ({ parts, texts, running }) => {
    formShown(placeOf(element), parts);
    for (const [name, value] of Object.entries({ ...texts, ...parts })) deliver(name, value, running);
  };
  function hand(frame) {
    goes(frame.running);
    begins(frame.running, frame.texts);
    shows(frame);
    if (keeps.place && following) gather(frame);
  }
  // Of a text a frame has only what is new.
  function gather({ parts, texts }) {
    whole ??= { parts: {}, texts: {}, running: false };
    Object.assign(whole.parts, parts);
    for (const [name, [known, more]] of Object.entries(texts)) {
      whole.texts[name] = [0, [...(whole.texts[name]?.[1].slice(0, known) ?? []), ...more]];
    }
  }
  function receive() {
    const value = reduced(props.value), before = following;
    following = value?.follow ?? "";
    if (following || (value?.whole && !before)) formMade(placeOf(element));
    // What the page opens with is not the end of a run that went on before.
    if (before || following) stored("sessionStorage", UNDER_WAY, following);
    open();
    news ||= Boolean(following || value?.whole);
    if (following && keeps.place) unkept(keeps.figures, false);
    if (!following || following !== before) whole = null;
    if (following || !value) return;
    hand(value);
    if (value.whole && keeps.place) keepFrame(keeps, value);
  }
  // A browser has six connections for all pages of a server: one that nobody sees needs none.
  function open() {
    source?.close();
    source = following && !document.hidden ? new EventSource(`lab/frames/${following}`) : null;
    if (source) source.onmessage = (event) => hand(JSON.parse(event.data));
  }
  document.addEventListener("visibilitychange", () => following && open());
  if (keeps.place) {
    cutShort.set(keeps.figures, (said) => {
      if (!whole) return;
      whole.parts = Object.fromEntries(Object.entries(whole.parts).map(([name, part]) => [name, rested(part, said)]));
      shows(whole);
      keepFrame(keeps, whole);
    });
  }
  watch("value", receive);
  receive();
  keptFrame(keeps).then((found) => {
    if (!found || news) return;
    formOf(keeps.place).made = found.made;
    shows(found.frame);
    covers(keeps.place);
  });
}
