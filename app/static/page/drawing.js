// One queue for all charts. Moving lines is cheap and done for all of them in one picture; a whole drawing is dear, so
// each picture has one at most: of a chart whose lines cannot be moved, or else of one that was not drawn whole for
// long. While something runs, drawing takes about SHARE of the page's time, so that a slow machine sees fewer
// pictures, never late ones, and the model keeps its cores: with few of them the charts are drawn every fourth time
// that data come. The first drawings of a run wait for nothing but each other. A picture is made together with the one
// that shows new text where data come in time for that.
const SHARE = 0.2, SLOWEST = 150, FEW = navigator.hardwareConcurrency <= 2 ? 700 : 0, LATE = 60;
const waiting = new Set();
let asked = false, timer = 0, last = 0, rest = 0;
function drawWaiting() {
  asked = false;
  const start = performance.now();
  const shown = [...waiting].filter((chart) => chart.visible());
  const wanting = shown.map((chart) => [chart.moved() ? chart.due() : Infinity, chart]).filter(([late]) => late > 0);
  const next = wanting.sort(([one], [other]) => (one === other ? 0 : other - one))[0]?.[1];
  next?.draw();
  const left = wanting.map(([, chart]) => chart).filter((chart) => chart !== next);
  for (const chart of shown) if (!left.includes(chart)) waiting.delete(chart);
  last = performance.now();
  const rests = shown.some((chart) => chart.running) && !left.some((chart) => chart.fresh());
  rest = rests ? Math.max(FEW, Math.min(SLOWEST, (last - start) / SHARE)) : 0;
  if (left.length) schedule();
}
function schedule(chart) {
  if (chart) waiting.add(chart);
  if (chart && !chart.running) rest = 0;
  if (asked || !waiting.size) return;
  const wait = last + rest - performance.now();
  clearTimeout(timer);
  asked = wait <= 0;
  if (asked) drawing = requestAnimationFrame(drawWaiting); else timer = setTimeout(schedule, wait + LATE);
}
// Paper shows what no screen did.
addEventListener("beforeprint", () => {
  for (const chart of [...waiting].filter((chart) => chart.placed())) {
    chart.draw();
    waiting.delete(chart);
  }
});

// The path through the points, broken where a number is missing.
function path(points, steps) {
  let d = "", pen = false;
  for (const [x, y] of points) {
    if (!Number.isFinite(x) || !Number.isFinite(y)) { pen = false; continue; }
    d += !pen ? `M${x},${y}` : steps ? `H${x}V${y}` : `L${x},${y}`;
    pen = true;
  }
  return d;
}

// Moves lines, areas and points of a chart that Plotly drew; false where that does not show the data.
function move(plot, data) {
  const { _fullData: traces, _fullLayout: layout } = plot;
  const round = (value) => Math.round(value * 100) / 100;
  return data.every((trace, i) => {
    if (["box", "bar"].includes(trace.type)) return false;
    if (!trace.x || trace.x[0] === null) return true;
    const group = plot.querySelector(`.trace${traces[i].uid}`);
    const [across, up] = [layout[traces[i].xaxis.replace("x", "xaxis")], layout[traces[i].yaxis.replace("y", "yaxis")]];
    const points = Array.from(trace.x, (x, k) => [x, trace.y[k]].includes(null) ? [NaN, NaN] : [round(across.d2p(x)), round(up.d2p(trace.y[k]))]);
    const marks = group?.querySelectorAll("path.point") ?? [];
    const lines = plot.querySelectorAll(`.trace${traces[i].uid} :is(.js-line, .js-fill)`);
    if (!lines.length && marks.length !== points.length) return false;
    const d = path(points, trace.line?.shape === "hv");
    for (const line of lines) line.setAttribute("d", line.matches(".js-fill") ? `${d}Z` : d);
    // A point more or less than were drawn appears or goes with the next whole drawing.
    marks.forEach((mark, k) => points[k] && mark.setAttribute("transform", `translate(${points[k]})`));
    return true;
  });
}

const fits = (chart) => JSON.stringify([chart.run, chart.data.map((trace) => trace.name), chart.layout.xaxis, chart.layout.yaxis, dark()]);
