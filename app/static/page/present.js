// Scenes over the whole page, one after another, each played from what came with the page: nothing is asked of the
// server. Scenes come as the property `scenes`.
let openScenes = () => {};
function present(element, props) {
  const LONGEST = 7000, READING = 5000, PICTURE = 50;
  const root = element.querySelector(".ll-present"), stage = root.querySelector(".ll-scene");
  const part = (name) => root.querySelector(`[data-act=${name}]`);
  const made = (tag, kind, words = "") => Object.assign(document.createElement(tag), { className: kind, textContent: words });
  let at = 0, playing = 0, down = null, whole = false;

  function show(number) {
    at = Math.min(Math.max(number, 0), props.scenes.length - 1);
    const scene = props.scenes[at];
    root.querySelector("h2").textContent = scene.title;
    root.querySelector(".ll-look").textContent = scene.look;
    root.querySelector(".ll-place").textContent = props.scenes.length === 1 ? "Recorded" : `${at + 1} of ${props.scenes.length}, recorded`;
    part("previous").disabled = at === 0;
    part("next").disabled = at === props.scenes.length - 1;
    for (const name of ["previous", "next"]) part(name).hidden = props.scenes.length === 1;
    root.dataset.scene = scene.name;
    root.scrollTop = 0;
    root.focus();
    play();
  }
  function play() {
    const scene = props.scenes[at];
    const [picture, lasts] = scene.chart ? drawnChart(scene.chart) : drawnLanes(scene);
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    let begun = null, last = -PICTURE;
    cancelAnimationFrame(playing);
    root.dataset.played = "";
    function next(now) {
      begun ??= now;
      const share = still ? 1 : Math.min(1, (now - begun) / lasts);
      if (share === 1 || now - last >= PICTURE) { last = now; picture(share); }
      if (share < 1) drawing = playing = requestAnimationFrame(next); else root.dataset.played = "whole";
    }
    // As for charts: it is not taken for the sign of the page that loads.
    drawing = playing = requestAnimationFrame(next);
  }

  // Both give what draws a share of the scene, and the milliseconds that it lasts.
  function drawnLanes({ lanes, span, unit }) {
    const texts = lanes.map(({ name }, index) => {
      const box = made("section", "ll-said"), words = made("p", "ll-saying");
      box.dataset.lane = index;
      words.tabIndex = 0;
      words.dir = "auto";
      box.append(made("h3", "", name), words);
      return box;
    });
    const spoken = made("div", "ll-saids"), track = made("div", "ll-runs");
    spoken.append(...texts);
    stage.replaceChildren(spoken, track);
    const seconds = Math.max(...lanes.map(({ tokens }) => tokens.at(-1)[1]));
    function picture(share) {
      track.replaceChildren(...lanes.map((lane, index) => {
        const come = lane.tokens.filter(([, second]) => second <= share * seconds);
        const [, , produced, target] = come.at(-1) ?? [, , 0, lane.tokens[0][3]];
        const over = come.length === lane.tokens.length;
        const words = texts[index].querySelector("p"), text = come.map(([piece]) => piece).join("");
        if (words.textContent !== text) words.textContent = text;
        const row = drawnLane(over ? lane : {
          ...lane, produced, state: "busy", words: `${produced} ${unit}`, forecast: null,
          ends: lane.ends.filter((end) => end <= produced), chance: lane.chance.filter(([place]) => place <= produced),
        }, index, span);
        if (target != null) {
          const flag = made("b", "ll-goal");
          flag.append(made("span", "", target));
          flag.style.insetInlineStart = along(target, span);
          row.querySelector(".ll-bar").append(flag);
        }
        return row;
      }));
      // What was written last is seen, also where a longer caption left the text less room.
      for (const words of spoken.querySelectorAll("p")) {
        words.scrollTop = words.scrollHeight;
        words.classList.toggle("ll-begun-above", words.scrollTop > 0);
      }
    }
    return [picture, Math.min(LONGEST, 1000 * seconds)];
  }
  function drawnChart({ data, layout, summary }) {
    const box = made("div", "ll-drawn"), colours = palette();
    box.setAttribute("role", "img");
    box.setAttribute("aria-label", summary);
    stage.replaceChildren(box);
    const size = parseFloat(getComputedStyle(stage).fontSize), narrow = stage.clientWidth < 700;
    const large = (parts) => parts.map((one) => ({ ...one, font: { ...one.font, size } }));
    const reach = (values, log) => {
      const found = values.flat().filter(Number.isFinite).map((value) => (log ? Math.log10(value) : value));
      const [least, most] = [Math.min(...found), Math.max(...found)];
      return [least - 0.04 * (most - least), most + 0.08 * (most - least)];
    };
    const axis = (one, values) => {
      const range = reach(values, one.type === "log");
      const kept = (one.tickvals ?? []).map((tick, i) => [tick, one.ticktext[i]]).filter((_, i) => !narrow || i % 2);
      return { ...one, range, ...(one.tickvals && { tickvals: kept.map(([tick]) => tick), ticktext: kept.map(([, words]) => words) }) };
    };
    const shown = resolve({
      ...layout, annotations: large(layout.annotations), autosize: true, margin: { l: 10, r: 14, t: 14, b: 10 },
      xaxis: axis(layout.xaxis, data.map(({ x }) => x)), yaxis: axis(layout.yaxis, data.map(({ y }) => y)),
      legend: { ...layout.legend, font: { size } }, hovermode: false, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(root).fontFamily, size, color: colours.ink },
    }, colours);
    const lines = resolve(data, colours).map((line) => ({ ...line, line: { ...line.line, width: 5 } }));
    function picture(share) {
      const [least, most] = shown.xaxis.range, end = 10 ** (least + share * (most - least));
      const come = lines.map((line) => {
        const count = line.x.filter((x) => x <= end).length;
        return { ...line, x: line.x.slice(0, count), y: line.y.slice(0, count) };
      });
      withoutBase(() => Plotly.react(box, come, shown, { staticPlot: true, responsive: true }));
    }
    return [picture, READING];
  }

  function open() {
    if (root.open || !props.scenes.length) return;
    root.showModal();
    // The browser gives the whole screen to a hand alone.
    const full = navigator.userActivation?.isActive ? document.documentElement.requestFullscreen?.() : null;
    full?.then(() => { whole = true; }, () => null);
    show(0);
  }
  root.addEventListener("close", () => {
    cancelAnimationFrame(playing);
    stage.replaceChildren();
    if (whole && document.fullscreenElement) document.exitFullscreen();
    whole = false;
  });
  // The browser keeps Escape for itself while the page has the whole screen.
  document.addEventListener("fullscreenchange", () => { if (whole && !document.fullscreenElement) root.close(); });
  const acts = { close: () => root.close(), previous: () => show(at - 1), next: () => show(at + 1), again: play };
  root.addEventListener("click", (event) => acts[event.target.closest("[data-act]")?.dataset.act]?.());
  root.addEventListener("keydown", (event) => {
    event.stopPropagation();
    const pressed = event.key === " " && event.target.matches("button");
    const act = { ArrowRight: "next", PageDown: "next", " ": "next", ArrowLeft: "previous", PageUp: "previous" }[event.key];
    if (!act || pressed) return;
    event.preventDefault();
    acts[act]();
  });
  root.addEventListener("pointerdown", (event) => { down = event.isPrimary ? [event.clientX, event.clientY] : null; });
  root.addEventListener("pointerup", (event) => {
    const [across, up] = down ? [event.clientX - down[0], event.clientY - down[1]] : [0, 0];
    down = null;
    if (Math.abs(across) > 60 && Math.abs(across) > 2 * Math.abs(up)) acts[across < 0 ? "next" : "previous"]();
  });
  openScenes = open;
  root.dataset.scenes = props.scenes.length;
}
document.addEventListener("click", (event) => { if (event.target.closest("[data-present]")) openScenes(); });
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable=true]");
  if (event.key.toLowerCase() === "p" && !event.ctrlKey && !event.metaKey && !event.altKey && !typing) openScenes();
});
