// Everything the page does by itself. Each function is given the element of one gr.HTML whose template never changes,
// so that Gradio leaves the DOM inside it alone; values arrive through watch().
window.LengthLab = (() => {
  "use strict";

  // Gradio's sign that the page is loading goes on asking for pictures after it is gone, sixty a second for as long as
  // the page is open, and each costs a layout. Requests are numbered: where for half a second each picture brings one
  // besides the one made here, and that is not the charts' own, it is the sign's, and is taken back.
  let drawing = 0;
  function hush(pictures, number, steady) {
    const next = requestAnimationFrame(() => hush(pictures - 1, next, alone ? steady + 1 : 0));
    const alone = next - number === 2 && drawing !== number + 1;
    const found = alone && steady >= 30;
    if (found) cancelAnimationFrame(number + 1);
    if (found || !pictures) cancelAnimationFrame(next);
  }
  hush(1800, 0, 0);

  const dark = () => document.body.classList.contains("dark");
  const palette = () => window.LENGTH_LAB_PALETTES[dark() ? "dark" : "light"];
  const reduced = (value) => {
    try { return value ? JSON.parse(value) : null; } catch { return null; }
  };

  function resolve(value, colours) {
    if (typeof value === "string") {
      if (value[0] !== "@") return value;
      const [name, opacity] = value.slice(1).split("/");
      const colour = colours[name];
      if (!opacity || !colour) return colour ?? value;
      const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
      return `rgba(${r},${g},${b},${opacity})`;
    }
    if (Array.isArray(value)) return typeof value[0] === "number" && typeof value[1] !== "string" ? value : value.map((item) => resolve(item, colours));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolve(item, colours)]));
    }
    return value;
  }

  // What a stream brings, by name: kept until the component of that name is there, then handed to it.
  const receivers = new Map(), kept = new Map();
  let underway = false;
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
  // Hands out frames: one that Gradio brings, or those of the stream it names, until it brings the last one.
  function stream(props, watch) {
    let source = null;
    function hand({ parts, texts, running }) {
      underway = running;
      for (const [name, value] of Object.entries({ ...texts, ...parts })) deliver(name, value, running);
    }
    function receive() {
      const value = reduced(props.value);
      source?.close();
      source = value?.follow ? new EventSource(`lab/frames/${value.follow}`) : null;
      if (source) source.onmessage = (event) => hand(JSON.parse(event.data));
      else if (value) hand(value);
    }
    watch("value", receive);
    receive();
  }

  // One queue for all charts. Moving lines is cheap and done for all of them in one picture; a whole drawing is dear, so
  // each picture has one at most: of a chart whose lines cannot be moved, or else of one that was not drawn whole for
  // long. While something runs, drawing takes about SHARE of the page's time, so that a slow machine sees fewer
  // pictures, never late ones, and the model keeps its cores: with few of them the charts are drawn every fourth time
  // that data come. A picture is made together with the one that shows new text where data come in time for that.
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
    rest = shown.some((chart) => chart.running) ? Math.max(FEW, Math.min(SLOWEST, (last - start) / SHARE)) : 0;
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

  function chart(element, props, watch) {
    const root = element.querySelector(".ll-chart");
    const plot = root.querySelector(".ll-plot");
    const words = root.querySelector(".ll-words");
    const spoken = root.querySelector(".ll-spoken");
    const table = root.querySelector(".ll-table");
    let latest = null, held = null, size = "", quiet = 0, onScreen = false;
    let whole = { fits: "", due: 0 };

    const self = {
      running: false,
      // The first drawing is made out of sight as well, so that scrolling never meets an empty card.
      visible: () => plot.offsetParent !== null && plot.clientWidth > 0 && (onScreen || !plot.dataset.created),
      due: () => performance.now() - whole.due,
      moved() {
        if (!self.running || fits(latest) !== whole.fits || !move(plot, latest.data)) return false;
        root.dataset.drawn = latest.frame;
        words.textContent = latest.summary;
        return true;
      },
      draw() {
        const start = performance.now();
        const colours = palette();
        const layout = {
          ...resolve(latest.layout, colours), uirevision: latest.run, autosize: true,
          paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
          font: { family: getComputedStyle(root).fontFamily, size: 11, color: colours.muted },
          hoverlabel: { bgcolor: colours.paper, bordercolor: colours.grid, font: { color: colours.ink, size: 11 } },
          modebar: { bgcolor: "rgba(0,0,0,0)", color: colours.muted, activecolor: colours.c1 },
        };
        const data = resolve(latest.data, colours);
        if (plot.dataset.created) {
          Plotly.react(plot, data, layout);
        } else {
          plot.dataset.created = 1;
          withoutBase(() => Plotly.newPlot(plot, data, layout, {
            displaylogo: false, responsive: false, displayModeBar: "hover", showSendToCloud: false,
            modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
          }));
          root.dataset.created = Number(root.dataset.created || 0) + 1;
          new ResizeObserver(() => {
            const now = `${plot.clientWidth}x${plot.clientHeight}`;
            if (plot.clientWidth && now !== size) { size = now; Plotly.Plots.resize(plot); }
          }).observe(plot);
        }
        root.dataset.drawn = latest.frame;
        words.textContent = latest.summary;
        if (!table.hidden) fillTable();
        const now = performance.now();
        whole = { fits: fits(latest), due: now + Math.max(1500, 600 * (now - start)) };
      },
    };

    function receive(payload, running, own = false) {
      // What the form would do waits until the run is over, which a run that fails says without a last chart.
      if (own && self.running && underway) { held = payload; root.dataset.held = payload.summary; return; }
      if (own || payload.run !== latest?.run) held = null;
      const same = latest && payload.frame === latest.frame && payload.run === latest.run && running;
      self.running = running;
      if (!running && held) { [payload, held] = [held, null]; }
      if (!held) delete root.dataset.held;
      if (same) return;
      latest = payload;
      if (root.dataset.run !== payload.run) root.dataset.run = payload.run;
      root.dataset.received = payload.frame;
      clearTimeout(quiet);
      quiet = setTimeout(() => { if (plot.offsetParent) spoken.textContent = latest.summary; }, 1500);
      schedule(self);
    }

    function fillTable() {
      const cells = (tag, row) => row.map((value) => {
        const cell = document.createElement(tag);
        cell.textContent = typeof value === "number" ? value.toLocaleString("en", { maximumSignificantDigits: 4 }) : value;
        return cell;
      });
      const line = (tag, row) => {
        const tr = document.createElement("tr");
        tr.append(...cells(tag, row));
        return tr;
      };
      table.tHead.replaceChildren(line("th", latest.columns));
      table.tBodies[0].replaceChildren(...latest.rows.map((row) => line("td", row)));
    }

    root.addEventListener("click", (event) => {
      const action = event.target.closest("[data-act]")?.dataset.act;
      if (!action) return;
      if (action === "table") {
        table.hidden = !table.hidden;
        event.target.closest("button").setAttribute("aria-pressed", String(!table.hidden));
        if (!table.hidden && latest) fillTable();
      } else if (action === "expand") {
        const wide = root.classList.toggle("wide");
        element.closest(".block.ll-cell")?.classList.toggle("wide", wide);
        event.target.closest("button").setAttribute("aria-pressed", String(wide));
      } else {
        save(plot, action, root.dataset.name);
        root.querySelector("details").open = false;
      }
    });
    new MutationObserver(() => latest && schedule(self)).observe(document.body, { attributeFilter: ["class"] });
    new IntersectionObserver((entries) => {
      onScreen = entries.at(-1).isIntersecting;
      schedule();
    }, { rootMargin: "150px" }).observe(plot);
    receives(root.dataset.name, receive, props, watch);
  }

  async function save(plot, format, name) {
    const filename = `length-lab-${name}`;
    if (format !== "html") {
      await Plotly.downloadImage(plot, { format, filename, width: 960, height: 600, scale: format === "png" ? 2 : 1 });
      return;
    }
    const library = await (await fetch(document.querySelector("script[src*='plotly']").src)).text();
    const figure = JSON.stringify({ data: plot.data, layout: { ...plot.layout, paper_bgcolor: palette().paper } });
    const safe = figure.replaceAll("<", "\\u003c");
    download(`<!doctype html><meta charset="utf-8"><title>${filename}</title><body style="margin:0">` +
      `<div id="plot" style="height:100vh"></div><script>${library.replaceAll("</script", "<\\/script")}</scr` +
      `ipt><script>const f=${safe};Plotly.newPlot("plot",f.data,f.layout,{responsive:true})</scr` + "ipt>",
      `${filename}.html`, "text/html");
  }

  function download(text, name, type) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  }

  // The text: pieces that only become more, the first the run's number, each other
  // [text, p, the model's own p, spread, remaining, whether it is thinking].
  // A value is [known, more], both counted in pieces; only what is new is added to the page, as text, never as markup.
  function response(element) {
    const root = element.querySelector(".ll-response");
    const text = root.querySelector(".ll-text");
    const tip = root.querySelector(".ll-tip");
    const facts = new WeakMap();
    let run = null, seen = 0, current = null;

    function receive([known, more]) {
      const name = known ? run : more[0] ?? null;
      if (name !== run) { run = name; seen = 0; text.replaceChildren(); current = null; hide(); }
      if (known > seen) return;
      const fresh = more.slice(Math.max(1, seen) - known);
      if (fresh.length) {
        const stick = text.scrollTop + text.clientHeight >= text.scrollHeight - 24;
        const added = document.createDocumentFragment();
        for (const piece of fresh) added.append(token(piece));
        text.append(added);
        if (stick) text.scrollTop = text.scrollHeight;
      }
      seen = known + more.length;
      root.classList.toggle("empty", !text.childElementCount);
      root.dataset.tokens = text.childElementCount;
    }

    function token([piece, ...numbers]) {
      const span = document.createElement("span");
      span.className = numbers.at(-1) ? "tok thinking" : "tok";
      span.textContent = piece;
      facts.set(span, numbers);
      if (text.dataset.tint) tint(span);
      return span;
    }
    function tint(span) {
      const [p, , spread] = facts.get(span);
      span.style.setProperty("--p", p);
      span.style.setProperty("--h", Math.min(1, spread / 5));
    }

    function show(span) {
      current?.classList.remove("on");
      current = span;
      span.classList.add("on");
      const [p, own, spread, remaining, thinking] = facts.get(span) ?? [];
      const shown = span.textContent.replaceAll("\n", "↵").replaceAll(" ", "␣") || "(joins the next token)";
      const lines = [["token", shown], ["probability", `${(100 * p).toPrecision(3)} %`]];
      if (own != null && own !== p) lines.push(["by the model alone", `${(100 * own).toPrecision(3)} %`]);
      lines.push(["entropy", `${Number(spread).toFixed(2)} nats`]);
      if (thinking) lines.push(["before the answer", "thinking"]);
      if (remaining != null) lines.push(["remaining", remaining]);
      tip.replaceChildren(...lines.map(([name, value]) => {
        const line = document.createElement("span");
        line.append(Object.assign(document.createElement("b"), { textContent: value }), ` ${name}`);
        return line;
      }));
      tip.hidden = false;
      tip.style.left = "0";
      const box = span.getBoundingClientRect(), frame = root.getBoundingClientRect();
      const left = Math.min(Math.max(0, box.left - frame.left), Math.max(0, root.clientWidth - tip.offsetWidth - 1));
      const above = box.top - frame.top - tip.offsetHeight - 6;
      tip.style.left = `${left}px`;
      tip.style.top = `${above > 0 ? above : box.bottom - frame.top + 6}px`;
    }
    // Whether the paragraph in which a token begins runs from right to left, as the browser tells by its letters.
    function leftward(span) {
      const before = document.createRange();
      before.setStart(text, 0);
      before.setEndBefore(span);
      const paragraph = before.toString().split("\n").at(-1) + text.textContent.slice(before.toString().length).split("\n")[0];
      return Object.assign(document.createElement("bdi"), { textContent: paragraph }).matches(":dir(rtl)");
    }
    function hide() { tip.hidden = true; current?.classList.remove("on"); }

    text.addEventListener("pointerover", (event) => event.target.matches(".tok") && show(event.target));
    text.addEventListener("pointerleave", () => document.activeElement !== text && hide());
    text.addEventListener("blur", hide);
    text.addEventListener("focus", () => { const span = current ?? text.firstElementChild; if (span) show(span); });
    text.addEventListener("keydown", (event) => {
      const [onward, back] = current && leftward(current) ? ["ArrowLeft", "ArrowRight"] : ["ArrowRight", "ArrowLeft"];
      const next = {
        [onward]: () => current?.nextElementSibling, [back]: () => current?.previousElementSibling,
        Home: () => text.firstElementChild, End: () => text.lastElementChild,
      }[event.key]?.();
      if (!next) return;
      event.preventDefault();
      next.scrollIntoView({ block: "nearest" });
      show(next);
    });
    root.querySelector("select").addEventListener("change", (event) => {
      text.dataset.tint = event.target.value;
      if (event.target.value) for (const span of text.children) tint(span);
    });
    root.querySelector("[data-act=copy]").addEventListener("click", (event) => {
      copy(event.target, text.textContent, () => { getSelection().selectAllChildren(text); return "Press Ctrl+C"; });
    });
    receives(root.dataset.name, receive);
  }

  // Copies what a hidden box holds: browsers have no clipboard of their own where the page came over plain HTTP from
  // another machine.
  async function copyBySelection(text) {
    const box = Object.assign(document.createElement("textarea"), { value: text });
    box.style.cssText = "position: fixed; top: 0; opacity: 0";
    const before = document.activeElement;
    document.body.append(box);
    box.select();
    const done = document.execCommand("copy");
    box.remove();
    before?.focus({ preventScroll: true });
    if (!done) throw new Error("the browser does not let this page copy");
  }
  // Gradio's own buttons ask for a clipboard too.
  if (!navigator.clipboard) Object.defineProperty(navigator, "clipboard", { value: { writeText: copyBySelection } });

  // Copies for a button, which then says so, or else what `otherwise` makes possible.
  async function copy(button, text, otherwise) {
    const done = await navigator.clipboard.writeText(text).catch(() => copyBySelection(text)).then(() => true, () => false);
    flash(button, done ? "Copied" : otherwise());
  }

  const flashing = new Map();
  function flash(button, words) {
    const { name, timer } = flashing.get(button) ?? { name: button.textContent };
    clearTimeout(timer);
    button.textContent = words;
    const back = () => { button.textContent = name; flashing.delete(button); };
    flashing.set(button, { name, timer: setTimeout(back, 2000) });
  }

  // Named figures in a strip: the value is {field: text, …, state, message}.
  function figures(element, props, watch) {
    const root = element.querySelector(".ll-figures");
    const message = root.querySelector(".ll-message");
    const fields = [...root.querySelectorAll("[data-field]")];
    const bar = root.querySelector(".ll-progress > i");
    const write = (node, words) => { if (node.textContent !== words) node.textContent = words; };
    function receive(value) {
      for (const field of fields) write(field, value[field.dataset.field] ?? "–");
      root.dataset.state = value.state ?? "";
      bar.style.transform = `scaleX(${Math.min(1, value.progress ?? 0)})`;
      write(message, value.message ?? "");
    }
    receives(root.dataset.name, receive, props, watch);
  }

  // What several ways to read wrote: the value is [[name, text, verdict], …].
  function answers(element, props, watch) {
    const root = element.querySelector(".ll-answers");
    const made = (tag, words) => Object.assign(document.createElement(tag), { textContent: words });
    function receive(rows) {
      root.querySelector(".ll-hint").hidden = rows.length > 0;
      root.querySelector("dl").replaceChildren(...rows.map(([name, words, verdict]) => {
        const title = made("dt", name);
        if (verdict) title.append(made("b", verdict));
        const answer = made("div", "");
        answer.append(title, made("dd", words));
        return answer;
      }));
    }
    receives(root.dataset.name, receive, props, watch);
  }

  // A group of radio buttons in which single ones can be switched off with the reason shown; where reasons differ, a list
  // that the keyboard opens has them all.
  function choice(element, props, trigger, watch) {
    const root = element.querySelector(".ll-choice");
    const name = `choice-${Math.random().toString(36).slice(2)}`;
    const reason = root.querySelector(".ll-reason"), reasons = root.querySelector(".ll-reasons");
    const differ = (off) => new Set(off.map((option) => option.off)).size > 1;
    function build() {
      const box = root.querySelector("div");
      box.replaceChildren(...props.options.map(({ id, label, hint, off }) => {
        const line = document.createElement("label");
        const input = Object.assign(document.createElement("input"), { type: "radio", name, value: id, disabled: Boolean(off) });
        const caption = Object.assign(document.createElement("span"), { textContent: label });
        line.title = off || hint || "";
        if (off) {
          line.classList.add("off");
          input.setAttribute("aria-describedby", `${name}-${id}`);
          line.addEventListener("click", () => { reason.textContent = `${label}: ${off}`; });
        }
        line.append(input, caption);
        return line;
      }));
      const off = props.options.filter((option) => option.off);
      reasons.hidden = !differ(off);
      reasons.querySelector("ul").replaceChildren(...off.map((option) => Object.assign(
        document.createElement("li"), { id: `${name}-${option.id}`, textContent: `${option.label}: ${option.off}` })));
      mark();
    }
    function mark() {
      for (const input of root.querySelectorAll("input")) input.checked = input.value === props.value;
      const chosen = props.options.find(({ id }) => id === props.value);
      const off = props.options.filter((option) => option.off);
      reason.textContent = [chosen?.off || chosen?.hint, off.length ? `Switched off: ${off.map((o) => o.label).join(", ")} — ${differ(off) ? `${off[0].label}: ` : ""}${off[0].off}` : ""]
        .filter(Boolean).join(" ");
    }
    root.addEventListener("change", (event) => {
      props.value = event.target.value;
      mark();
      trigger("change");
      trigger("input");
    });
    watch("value", mark);
    watch("options", build);
    build();
  }

  // Values of an event's inputs, numbers moved into their [least, most], an empty one to the least.
  const inRange = (values, ranges) => values.map((value, i) => {
    if (!ranges[i]) return value;
    const [least, most] = [ranges[i][0] ?? -Infinity, ranges[i][1] ?? Infinity];
    const number = typeof value === "number" && Number.isFinite(value) ? value : Math.max(least, 0);
    return Math.min(Math.max(number, least), most);
  });

  // The wait for a run: begun by a press, ended by the run's first frame, or here where no run will come.
  const waits = (name) => { veil(false); deliver(name, { state: "busy", message: "Waiting for the model …" }); };
  const veil = (veiled) => document.querySelector(".ll-stage")?.classList.toggle("ll-veiled", veiled);
  function gone(name, state, message) {
    if (document.querySelector(`.ll-figures[data-name=${name}]`).dataset.state === "busy") deliver(name, { state, message });
  }
  function refused(name, values, ranges) {
    const wrong = ranges.findIndex((range, i) => range && inRange([values[i]], [range])[0] !== values[i]);
    const ways = "Too many runs are waiting, or something chosen is not on its list. Nothing you entered is lost: try again in a moment, or choose anew.";
    gone(name, "bad", wrong < 0 ? ways : outside(values[wrong], ranges[wrong]));
  }
  function outside(value, [least, most, label]) {
    const span = most == null ? `of at least ${least}` : `from ${least} to ${most.toLocaleString("en")}`;
    const wrong = typeof value === "number" ? ` in place of ${value.toLocaleString("en")}` : "";
    return `${label}: give a number ${span}${wrong}, and press the button again.`;
  }

  // In a page with a base, as Gradio's is, Plotly writes the page's address into every clip path, once for ever: a
  // changed address would leave them pointing nowhere.
  function withoutBase(draw) {
    const base = document.querySelector("base");
    const href = base?.getAttribute("href");
    base?.removeAttribute("href");
    try {
      return draw();
    } finally {
      if (href != null) base.setAttribute("href", href);
    }
  }

  const THEME = "length-lab-theme";
  function setTheme(name) {
    document.body.classList.toggle("dark", name === "dark");
    localStorage.setItem(THEME, name);
  }
  // The theme chosen before, unless the address names one.
  function keptTheme() {
    const name = localStorage.getItem(THEME);
    if (name && !new URL(location.href).searchParams.has("__theme")) setTheme(name);
  }

  // The link goes to the address bar and to the clipboard.
  function share(query) {
    const url = new URL(location.href);
    const theme = url.searchParams.get("__theme");
    url.search = query;
    if (theme) url.searchParams.set("__theme", theme);
    history.replaceState(null, "", url);
    copy(document.querySelector("#share"), url.href, () => "It is in the address bar");
    return url.href;
  }

  document.addEventListener("keydown", (event) => {
    const press = (selector) => {
      const button = [...document.querySelectorAll(selector)].find((b) => b.offsetParent !== null && !b.disabled);
      if (button) { event.preventDefault(); button.click(); }
    };
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) press(".ll-go");
    else if (event.key === "Escape") press(".ll-stop");
  });

  // Gradio's base address would make of a link within the page one that leaves it.
  document.addEventListener("click", (event) => {
    const place = event.target.closest("a[href^='#']")?.hash.slice(1);
    if (!place) return;
    event.preventDefault();
    document.getElementById(place)?.scrollIntoView({ block: "start" });
  });

  return { chart, stream, deliver, response, figures, answers, choice, inRange, waits, gone, refused, setTheme, keptTheme, share, veil };
})();
