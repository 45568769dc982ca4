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
      // Of a run that is shown whole the beginning is read first.
      if (stick && underway) text.scrollTop = text.scrollHeight;
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
