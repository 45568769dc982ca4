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
