// Pixels that the unit takes at the end of the scale, with half a number beside it.
const UNIT = 64;
// A place along a runway of that length.
const along = (value, span) => `${(100 * Math.min(1, value / span)).toFixed(2)}%`;
function drawnLane({ name, produced, state, ends, chance, forecast, tried, words }, index, span) {
  const made = (tag, kind, at) => {
    const part = Object.assign(document.createElement(tag), { className: kind });
    if (at != null) part.style.insetInlineStart = along(at, span);
    return part;
  };
  const row = made("div", "ll-run");
  row.dataset.state = state;
  row.dataset.lane = index;
  const caption = made("p", "");
  caption.append(Object.assign(document.createElement("b"), { textContent: name }), ` ${words}`);
  const bar = made("div", "ll-bar"), done = made("i", "ll-done");
  done.style.width = along(produced, span);
  bar.append(done, ...ends.map((at) => made("i", "ll-end", at)), ...(forecast ? [made("i", "ll-forecast", forecast)] : []));
  bar.append(...tried.toReversed().map(([at, chosen]) => made("i", `ll-tried${chosen ? " chosen" : ""}`, at)));
  row.append(caption, bar, sparks(chance, span));
  return row;
}

// A chance of one in a thousand is to be seen beside certainty: the height is the fourth root.
function sparks(chance, span) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 1000 20");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "ll-sparks");
  const line = document.createElementNS(svg.namespaceURI, "path");
  const x = (at) => Math.round(1000 * Math.min(1, at / span));
  const points = chance.map(([at, p]) => `L${x(at)},${(20 - 19 * p ** 0.25).toFixed(1)}`).join("");
  line.setAttribute("d", chance.length ? `M${x(chance[0][0])},20${points}V20Z` : "");
  svg.append(line);
  return svg;
}

// Lanes from nothing to beyond a target: what was written, where sentences end, the chance to end, and the flag at the
// target, which the pointer and the arrow keys move. A value is {run, unit, target, span, lanes}, and the scene
// that plays the same, if any.
let asks = () => {};
const asksFor = (values) => asks(values);
function runway(element, props, trigger, watch) {
  const root = element.querySelector(".ll-runway");
  const track = root.querySelector(".ll-track"), flag = root.querySelector(".ll-flag");
  const scale = root.querySelector(".ll-scale"), spoken = root.querySelector(".ll-spoken");
  const least = Number(flag.getAttribute("aria-valuemin"));
  let latest = { span: 1.5 * props.value, unit: "tokens", lanes: [] }, asked = null, begun = false;
  const share = (value) => along(value, latest.span);
  const backwards = () => getComputedStyle(track).direction === "rtl";

  function draw() {
    root.querySelector(".ll-runs").replaceChildren(...latest.lanes.map((lane, index) => drawnLane(lane, index, latest.span)));
    const step = [5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000].find((size) => latest.span / size <= 8) ?? latest.span;
    // The unit stands at the end, and needs its room.
    const room = Math.min(0.97, 1 - UNIT / (scale.clientWidth || Infinity));
    scale.replaceChildren(...Array.from({ length: Math.ceil(room * latest.span / step) }, (_, i) => {
      const label = Object.assign(document.createElement("span"), { textContent: (i * step).toLocaleString("en") });
      label.style.insetInlineStart = share(i * step);
      return label;
    }), Object.assign(document.createElement("em"), { textContent: latest.unit }));
    place();
  }
  function place() {
    const target = props.value ?? latest.target;
    flag.style.insetInlineStart = share(target);
    flag.setAttribute("aria-valuenow", target);
    flag.setAttribute("aria-valuemax", Math.round(latest.span));
    flag.setAttribute("aria-valuetext", `${target} ${latest.unit}`);
    flag.firstElementChild.textContent = target;
  }
  function move(target) {
    const most = Math.max(least, Math.floor(latest.span));
    target = Math.min(most, Math.max(least, Math.round(target)));
    if (target === props.value) return;
    props.value = target;
    place();
    trigger("input");
  }

  // Veils what was written as long as the form asks for something else.
  function compare() {
    const { prompt, target, unit, lands } = latest;
    const same = !asked || [prompt, target, unit, lands].every((value, i) => value === asked[i]);
    root.closest(".ll-try")?.classList.toggle("ll-veiled", latest.lanes.length > 0 && !same);
  }

  // The endings that landing tried, with why each is written or not; the reader's open list stays open.
  function drawWhys() {
    const whys = root.querySelector(".ll-whys"), tried = latest.lanes.flatMap((lane) => lane.tried);
    const now = JSON.stringify(tried);
    if (whys.dataset.now === now) return;
    whys.dataset.now = now;
    whys.hidden = !tried.length;
    whys.querySelector("ol").replaceChildren(...tried.map(([at, chosen, text, why]) => {
      const line = Object.assign(document.createElement("li"), { className: chosen ? "chosen" : "" });
      const said = Object.assign(document.createElement("q"), { textContent: text || "…", dir: "auto", translate: false });
      const reason = Object.assign(document.createElement("span"), { textContent: why });
      const length = Object.assign(document.createElement("b"), { textContent: at.toLocaleString("en") });
      line.append(length, said, reason);
      return line;
    }));
  }

  // The end alone is said: what changes at each token would never let a listener go.
  function speak(running) {
    if (begun && !running) spoken.textContent = latest.lanes.map(({ name, words }) => `${name}: ${words}.`).join(" ");
    if (running && !begun) spoken.textContent = "";
    begun = running;
  }

  function receive(value, running) {
    latest = value;
    compare();
    root.dataset.run = value.run;
    root.dataset.scene = value.scene;
    root.dataset.drawn = value.frame;
    draw();
    drawWhys();
    speak(running);
  }

  flag.addEventListener("pointerdown", (event) => { event.preventDefault(); flag.focus(); flag.setPointerCapture(event.pointerId); });
  flag.addEventListener("pointermove", (event) => {
    if (!flag.hasPointerCapture(event.pointerId)) return;
    const box = track.getBoundingClientRect();
    const along = backwards() ? box.right - event.clientX : event.clientX - box.left;
    move(latest.span * along / box.width);
  });
  flag.addEventListener("keydown", (event) => {
    const right = backwards() ? -1 : 1;
    const by = { ArrowRight: right, ArrowUp: 1, ArrowLeft: -right, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
    if (!by) return;
    event.preventDefault();
    move((props.value ?? latest.target) + by);
  });
  watch("value", () => {
    // With a target beyond the runway the flag would stand at its end, and say nothing.
    if (!latest.lanes.length || props.value > latest.span) { latest = { ...latest, span: 1.5 * props.value }; draw(); } else place();
  });
  asks = (values) => { asked = values; compare(); };
  draw();
  receives(root.dataset.name, receive);
}
