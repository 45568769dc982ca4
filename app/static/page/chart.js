function chart(element, props, watch) {
  const root = element.querySelector(".ll-chart");
  const plot = root.querySelector(".ll-plot");
  const words = root.querySelector(".ll-words");
  const spoken = root.querySelector(".ll-spoken");
  const table = root.querySelector(".ll-table");
  let latest = null, held = null, size = "", quiet = 0, onScreen = false;
  let whole = { fits: "", due: 0, run: null };

  const self = {
    running: false,
    // The first drawing is made out of sight as well, so that scrolling never meets an empty card.
    placed: () => plot.offsetParent !== null && plot.clientWidth > 0,
    visible: () => self.placed() && (onScreen || !plot.dataset.created),
    due: () => performance.now() - whole.due,
    fresh: () => latest.run !== whole.run,
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
        ...titled(resolve(latest.layout, colours)), uirevision: latest.run, autosize: true,
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        font: { family: getComputedStyle(root).fontFamily, size: 11, color: colours.muted },
        hoverlabel: { bgcolor: colours.paper, bordercolor: colours.grid, font: { color: colours.ink, size: 11 } },
        modebar: { bgcolor: "rgba(0,0,0,0)", color: colours.muted, activecolor: colours.c1 },
      };
      const data = titled(resolve(latest.data, colours));
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
      whole = { fits: fits(latest), due: now + Math.max(1500, 600 * (now - start)), run: latest.run };
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
    if ("seldom" in root.dataset) root.hidden = !payload.data.length;
    if (root.dataset.run !== payload.run) root.dataset.run = payload.run;
    root.dataset.received = payload.frame;
    // What a setting changes is heard. A run says itself how it ended: all its charts at once would drown that.
    clearTimeout(quiet);
    if (root.matches(".ll-preview")) quiet = setTimeout(() => { if (plot.offsetParent) spoken.textContent = latest.summary; }, 1500);
    schedule(self);
  }

  function fillTable() {
    const cells = (tag, row) => row.map((value, i) => {
      const cell = document.createElement(tag);
      if (tag === "td" && latest.written.includes(i)) cell.translate = false;
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
  const anew = new MutationObserver(() => latest && schedule(self));
  anew.observe(document.body, { attributeFilter: ["class"] });
  anew.observe(document.documentElement, { attributeFilter: ["lang"] });
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
  const { lang, dir } = document.documentElement;
  download(`<!doctype html><html lang="${lang}" dir="${dir || "ltr"}"><meta charset="utf-8"><title>${filename}</title><body style="margin:0">` +
    `<div id="plot" style="height:100vh;direction:ltr"></div><script>${library.replaceAll("</script", "<\\/script")}</scr` +
    `ipt><script>const f=${safe};Plotly.newPlot("plot",f.data,f.layout,{responsive:true,displaylogo:false,showSendToCloud:false})</scr` + "ipt>",
    `${filename}.html`, "text/html");
}

function download(text, name, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
