// A scene in the place that is given: what draws a share of it, and the milliseconds that the whole lasts.
const LONGEST = 7000, READING = 5000, PICTURE = 50;
const part = (tag, kind, words = "") => Object.assign(document.createElement(tag), { className: kind, textContent: words });
function cleared(stage) {
  for (const plot of stage.querySelectorAll(".js-plotly-plot")) Plotly.purge(plot);
  stage.replaceChildren();
}
function drawnScene(stage, scene) {
  cleared(stage);
  return scene.chart ? drawnChart(stage, scene.chart) : drawnLanes(stage, scene);
}

function drawnLanes(stage, { lanes, span, unit }) {
  const texts = lanes.map(({ name }, index) => {
    const box = part("section", "ll-said"), words = part("p", "ll-saying");
    box.dataset.lane = index;
    words.tabIndex = 0;
    words.dir = "auto";
    box.append(part("h3", "", name), words);
    return box;
  });
  const spoken = part("div", "ll-saids"), track = part("div", "ll-runs");
  spoken.append(...texts);
  stage.append(spoken, track);
  const seconds = Math.max(...lanes.map(({ tokens }) => tokens.at(-1)[1]));
  function picture(share) {
    track.replaceChildren(...lanes.map((lane, index) => {
      const come = lane.tokens.filter(([, second]) => second <= share * seconds);
      const [, , produced, target] = come.at(-1) ?? [, , 0, lane.tokens[0][3]];
      const over = come.length === lane.tokens.length;
      const words = texts[index].querySelector("p"), text = come.map(([piece]) => piece).join("");
      if (words.textContent !== text) words.textContent = text;
      const row = drawnLane(over ? lane : {
        ...lane, produced, state: "busy", words: `${produced} ${unit}`, forecast: null, tried: [],
        ends: lane.ends.filter((end) => end <= produced), chance: lane.chance.filter(([place]) => place <= produced),
      }, index, span);
      if (target != null) {
        const flag = part("b", "ll-goal");
        flag.append(part("span", "", target));
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

function drawnChart(stage, { data, layout, summary }) {
  const box = part("div", "ll-drawn"), colours = palette();
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", summary);
  stage.append(box);
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
  const shown = titled(resolve({
    ...layout, annotations: large(layout.annotations), autosize: true, margin: { l: 10, r: 14, t: 14, b: 10 },
    xaxis: axis(layout.xaxis, data.map(({ x }) => x)), yaxis: axis(layout.yaxis, data.map(({ y }) => y)),
    legend: { ...layout.legend, font: { size } }, hovermode: false, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(stage).fontFamily, size, color: colours.ink },
  }, colours));
  const lines = titled(resolve(data, colours)).map((line) => ({ ...line, line: { ...line.line, width: 5 } }));
  function picture(share) {
    const [least, most] = shown.xaxis.range, reached = least + share * (most - least);
    const end = shown.xaxis.type === "log" ? 10 ** reached : reached;
    const come = lines.map((line) => {
      const count = line.x.filter((x) => x <= end).length;
      return { ...line, x: line.x.slice(0, count), y: line.y.slice(0, count) };
    });
    withoutBase(() => Plotly.react(box, come, shown, { staticPlot: true, responsive: true }));
  }
  return [picture, READING];
}
// Plays a scene in its place, at once whole where nothing is to move; returns what ends that. `root` says how far it is.
function playedScene(root, stage, scene) {
  const [picture, lasts] = drawnScene(stage, scene);
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  let begun = null, last = -PICTURE, playing = 0;
  root.dataset.played = "";
  function next(now) {
    begun ??= now;
    const share = still ? 1 : Math.min(1, (now - begun) / lasts);
    if (share === 1 || now - last >= PICTURE) { last = now; picture(share); }
    if (share < 1) drawing = playing = requestAnimationFrame(next); else root.dataset.played = "whole";
  }
  // As for charts: it is not taken for the sign of the page that loads.
  drawing = playing = requestAnimationFrame(next);
  return () => cancelAnimationFrame(playing);
}
