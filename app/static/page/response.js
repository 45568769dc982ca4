// The text: pieces that only become more, the first the run's number, each other
// [text, p, the model's own p, spread, remaining, whether it is thinking, whether a person chose it, the likeliest tokens
// there as [id, text, the model's own p, whether it ends the response, p as drawn with]]. With a trigger another of these
// can be chosen: the value then says which.
// A value is [known, more], both counted in pieces; only what is new is added to the page, as text, never as markup.
function response(element, props, trigger) {
  const root = element.querySelector(".ll-response");
  const text = root.querySelector(".ll-text");
  const tip = root.querySelector(".ll-tip");
  const facts = new WeakMap();
  let run = null, seen = 0, current = null, pinned = false, asked = 0;

  function receive([known, more]) {
    const name = known ? run : more[0] ?? null;
    if (name !== run) { run = name; seen = 0; text.replaceChildren(); current = null; unpin(); }
    if (known > seen) return;
    const fresh = more.slice(Math.max(1, seen) - known);
    if (fresh.length) {
      const stick = text.scrollTop + text.clientHeight >= text.scrollHeight - 24;
      const added = document.createDocumentFragment();
      for (const piece of fresh) added.append(token(piece));
      text.append(added);
      // Of a run that is shown whole the beginning is read first.
      if (stick && underway) text.scrollTop = text.scrollHeight;
    }
    seen = known + more.length;
    root.classList.toggle("empty", !text.childElementCount);
    root.dataset.tokens = text.childElementCount;
  }

  function token([piece, ...numbers]) {
    const span = document.createElement("span");
    span.className = `tok${numbers[4] ? " thinking" : ""}${numbers[5] ? " chosen" : ""}`;
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
    const [p, own, spread, remaining, thinking, chosen, likeliest] = facts.get(span) ?? [];
    const lines = [["token", visible(span.textContent) || "(joins the next token)"], ["probability", `${(100 * p).toPrecision(3)} %`]];
    if (own != null && own !== p) lines.push(["by the model alone", `${(100 * own).toPrecision(3)} %`]);
    lines.push(["entropy", `${Number(spread).toFixed(2)} nats`]);
    if (thinking) lines.push(["before the answer", "thinking"]);
    if (chosen) lines.push(["by you", "chosen"]);
    if (remaining != null) lines.push(["remaining", remaining]);
    tip.replaceChildren(...lines.map(([name, value]) => {
      const line = document.createElement("span");
      line.append(Object.assign(document.createElement("b"), { textContent: value }), ` ${name}`);
      return line;
    }), ...(likeliest?.length ? [others(span, likeliest)] : []));
    tip.hidden = false;
    tip.style.left = "0";
    const box = span.getBoundingClientRect(), frame = root.getBoundingClientRect();
    const left = Math.min(Math.max(0, box.left - frame.left), Math.max(0, root.clientWidth - tip.offsetWidth - 1));
    const above = box.top - frame.top - tip.offsetHeight - 6;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 0 ? above : box.bottom - frame.top + 6}px`;
  }
  const percent = (p) => (100 * p).toPrecision(2);
  const visible = (words) => words.replaceAll("\n", "↵").replaceAll(" ", "␣");
  // The likeliest tokens in the place of one; where others can be chosen, as buttons once the tip stays.
  function others(span, likeliest) {
    const list = document.createElement("div");
    list.className = "ll-others";
    list.append(trigger ? "the model's likeliest here; choose one to go on from it:" : "the model's likeliest here:");
    for (const [token, words, own, ends, p] of likeliest) {
      const one = document.createElement(trigger ? "button" : "span");
      const said = ends ? "(the end)" : visible(words) || "(joins the next token)";
      const chances = `${percent(own)} %${p === own ? "" : `, drawn with ${percent(p)} %`}`;
      one.append(Object.assign(document.createElement("b"), { textContent: said }), ` ${chances}`);
      if (trigger) {
        one.type = "button";
        one.disabled = underway || ends || words === span.textContent;
        one.addEventListener("click", () => goOn(span, token));
      }
      list.append(one);
    }
    return list;
  }
  function goOn(span, token) {
    props.value = JSON.stringify({ index: [...text.children].indexOf(span) + 1, token, asked: ++asked });
    trigger("input");
    unpin();
    text.focus();
  }
  function pin(span) {
    if (!facts.get(span)?.[6]?.length || !trigger) return;
    pinned = true;
    show(span);
    tip.classList.add("pinned");
  }
  function unpin() {
    pinned = false;
    tip.classList.remove("pinned");
    hide();
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

  text.addEventListener("pointerover", (event) => !pinned && event.target.matches(".tok") && show(event.target));
  text.addEventListener("pointerleave", () => !pinned && document.activeElement !== text && hide());
  text.addEventListener("blur", () => !pinned && hide());
  text.addEventListener("click", (event) => event.target.matches(".tok") && pin(event.target));
  document.addEventListener("pointerdown", (event) => pinned && !tip.contains(event.target) && unpin());
  root.addEventListener("keydown", (event) => {
    if (!pinned || event.key !== "Escape") return;
    event.stopPropagation();
    unpin();
    text.focus();
  });
  text.addEventListener("focus", () => { const span = current ?? text.firstElementChild; if (span) show(span); });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && current && trigger) {
      // Else it would press the button that is focused by it.
      event.preventDefault();
      pin(current);
      tip.querySelector("button:enabled")?.focus();
      return;
    }
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
