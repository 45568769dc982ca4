// Everything the page does by itself. Each function is given the element of one gr.HTML whose template never changes,
// so that Gradio leaves the DOM inside it alone; values arrive through watch().
window.LengthLab = (() => {
  "use strict";

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

  // One queue for all charts: whichever waits longest is drawn next, and drawing takes at most about half of the
  // page's time, so that a slow machine sees fewer frames and never a late one.
  const waiting = new Set();
  let scheduled = false, rest = 0;
  function drawNext() {
    scheduled = false;
    const chart = [...waiting].find((candidate) => candidate.visible());
    if (!chart) return;
    waiting.delete(chart);
    const start = performance.now();
    chart.draw();
    rest = Math.min(250, performance.now() - start);
    schedule();
  }
  function schedule(chart) {
    if (chart) waiting.add(chart);
    if (scheduled || !waiting.size) return;
    scheduled = true;
    setTimeout(() => requestAnimationFrame(drawNext), rest);
  }

  function chart(element, props, watch) {
    const root = element.querySelector(".ll-chart");
    const plot = root.querySelector(".ll-plot");
    const words = root.querySelector(".ll-words");
    const spoken = root.querySelector(".ll-spoken");
    const table = root.querySelector(".ll-table");
    let latest = null, size = "", quiet = 0, onScreen = false;

    const self = {
      // The first drawing is made out of sight as well, so that scrolling never meets an empty card.
      visible: () => plot.offsetParent !== null && plot.clientWidth > 0 && (onScreen || !plot.dataset.created),
      draw() {
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
          Plotly.newPlot(plot, data, layout, {
            displaylogo: false, responsive: false, displayModeBar: "hover",
            modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
          });
          root.dataset.created = Number(root.dataset.created || 0) + 1;
          new ResizeObserver(() => {
            const now = `${plot.clientWidth}x${plot.clientHeight}`;
            if (plot.clientWidth && now !== size) { size = now; Plotly.Plots.resize(plot); }
          }).observe(plot);
        }
        root.dataset.drawn = latest.frame;
        words.textContent = latest.summary;
        if (!table.hidden) fillTable();
      },
    };

    function receive() {
      const payload = reduced(props.value);
      if (!payload) return;
      latest = payload;
      root.dataset.run = payload.run;
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
        element.closest(".ll-cell")?.classList.toggle("wide", wide);
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
    watch("value", receive);
    receive();
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

  // The text: a growing string of lines, the first naming the run, each other [text, p, spread, remaining].
  // Gradio sends only what was appended; only what was appended is added to the page, as text, never as markup.
  function response(element, props, watch) {
    const root = element.querySelector(".ll-response");
    const text = root.querySelector(".ll-text");
    const tip = root.querySelector(".ll-tip");
    let run = null, seen = 0, current = null;

    function receive() {
      const value = props.value || "";
      const first = value.indexOf("\n");
      const name = value.slice(0, first);
      if (name !== run) { run = name; seen = first + 1; text.replaceChildren(); current = null; hide(); }
      const end = value.lastIndexOf("\n") + 1;
      if (end > seen) {
        const stick = text.scrollTop + text.clientHeight >= text.scrollHeight - 24;
        const added = document.createDocumentFragment();
        for (const line of value.slice(seen, end).split("\n")) if (line) added.append(token(JSON.parse(line)));
        text.append(added);
        seen = end;
        if (stick) text.scrollTop = text.scrollHeight;
      }
      root.classList.toggle("empty", !text.childElementCount);
      root.dataset.tokens = text.childElementCount;
    }

    function token([piece, p, spread, remaining]) {
      const span = document.createElement("span");
      span.className = "tok";
      span.textContent = piece;
      Object.assign(span.dataset, { p, spread, remaining: remaining ?? "" });
      span.style.setProperty("--p", p);
      span.style.setProperty("--h", Math.min(1, spread / 5));
      return span;
    }

    function show(span) {
      current?.classList.remove("on");
      current = span;
      span.classList.add("on");
      const { p, spread, remaining } = span.dataset;
      const shown = span.textContent.replaceAll("\n", "↵").replaceAll(" ", "␣") || "(joins the next token)";
      const facts = [["probability", `${(100 * p).toPrecision(3)} %`], ["entropy", `${Number(spread).toFixed(2)} nats`]];
      if (remaining !== "") facts.push(["remaining", remaining]);
      tip.replaceChildren(...[["token", shown], ...facts].map(([name, value]) => {
        const line = document.createElement("span");
        line.append(Object.assign(document.createElement("b"), { textContent: value }), ` ${name}`);
        return line;
      }));
      tip.hidden = false;
      const box = span.getBoundingClientRect(), frame = root.getBoundingClientRect();
      const left = Math.min(Math.max(0, box.left - frame.left), Math.max(0, frame.width - tip.offsetWidth));
      const above = box.top - frame.top - tip.offsetHeight - 6;
      tip.style.left = `${left}px`;
      tip.style.top = `${above > 0 ? above : box.bottom - frame.top + 6}px`;
    }
    function hide() { tip.hidden = true; current?.classList.remove("on"); }

    text.addEventListener("pointerover", (event) => event.target.matches(".tok") && show(event.target));
    text.addEventListener("pointerleave", () => document.activeElement !== text && hide());
    text.addEventListener("blur", hide);
    text.addEventListener("focus", () => { const span = current ?? text.firstElementChild; if (span) show(span); });
    text.addEventListener("keydown", (event) => {
      const next = {
        ArrowRight: () => current?.nextElementSibling, ArrowLeft: () => current?.previousElementSibling,
        Home: () => text.firstElementChild, End: () => text.lastElementChild,
      }[event.key]?.();
      if (!next) return;
      event.preventDefault();
      next.scrollIntoView({ block: "nearest" });
      show(next);
    });
    root.querySelector("select").addEventListener("change", (event) => { text.dataset.tint = event.target.value; });
    root.querySelector("[data-act=copy]").addEventListener("click", (event) => {
      navigator.clipboard?.writeText(text.textContent);
      flash(event.target, "Copied");
    });
    watch("value", receive);
    receive();
  }

  function flash(button, words) {
    const before = button.textContent;
    button.textContent = words;
    setTimeout(() => { button.textContent = before; }, 1200);
  }

  // Named figures in a strip: the value is {field: text, …, state, message}.
  function figures(element, props, watch) {
    const root = element.querySelector(".ll-figures");
    const message = root.querySelector(".ll-message");
    function receive() {
      const value = reduced(props.value);
      if (!value) return;
      for (const field of root.querySelectorAll("[data-field]")) field.textContent = value[field.dataset.field] ?? "–";
      root.dataset.state = value.state ?? "";
      const bar = root.querySelector(".ll-progress > i");
      if (bar) bar.style.width = `${100 * Math.min(1, value.progress ?? 0)}%`;
      if (message.textContent !== (value.message ?? "")) message.textContent = value.message ?? "";
    }
    watch("value", receive);
    receive();
  }

  // A group of radio buttons in which single ones can be switched off with the reason shown.
  function choice(element, props, trigger, watch) {
    const root = element.querySelector(".ll-choice");
    const name = `choice-${Math.random().toString(36).slice(2)}`;
    const reason = root.querySelector(".ll-reason");
    function build() {
      const box = root.querySelector("div");
      box.replaceChildren(...props.options.map(({ id, label, hint, off }) => {
        const line = document.createElement("label");
        const input = Object.assign(document.createElement("input"), { type: "radio", name, value: id, disabled: Boolean(off) });
        const caption = Object.assign(document.createElement("span"), { textContent: label });
        line.title = off || hint || "";
        if (off) {
          line.classList.add("off");
          line.addEventListener("click", () => { reason.textContent = `${label}: ${off}`; });
        }
        line.append(input, caption);
        return line;
      }));
      mark();
    }
    function mark() {
      for (const input of root.querySelectorAll("input")) input.checked = input.value === props.value;
      const chosen = props.options.find(({ id }) => id === props.value);
      const off = props.options.filter((option) => option.off);
      reason.textContent = [chosen?.off || chosen?.hint, off.length ? `Switched off: ${off.map((o) => o.label).join(", ")} — ${off[0].off}` : ""]
        .filter(Boolean).join(" ");
    }
    root.addEventListener("change", (event) => {
      props.value = event.target.value;
      mark();
      trigger("change");
    });
    watch("value", mark);
    watch("options", build);
    build();
  }

  function setTheme(name) {
    document.body.classList.toggle("dark", name === "dark");
    const url = new URL(location.href);
    url.searchParams.set("__theme", name);
    history.replaceState(null, "", url);
  }

  function share(query) {
    const url = new URL(location.href);
    const theme = url.searchParams.get("__theme");
    url.search = query;
    if (theme) url.searchParams.set("__theme", theme);
    history.replaceState(null, "", url);
    navigator.clipboard?.writeText(url.href).catch(() => {});
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

  return { chart, response, figures, choice, setTheme, share };
})();
