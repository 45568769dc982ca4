// The conversation before a prompt: the value is [{question, answer, about}, …] as JSON. A turn, or all of them, can be
// taken out.
function conversation(element, props, trigger, watch) {
  const root = element.querySelector(".ll-talk");
  const list = root.querySelector("ol");
  const made = (tag, words, kind = "") => Object.assign(document.createElement(tag), { textContent: words, className: kind });
  function turn({ question, answer, about }, place) {
    const line = made("li", ""), foot = made("footer", "");
    const remove = Object.assign(made("button", "Remove"), { type: "button" });
    remove.setAttribute("aria-label", `Remove turn ${place + 1}`);
    remove.addEventListener("click", () => leave(reduced(props.value).filter((_, i) => i !== place), place));
    foot.append(made("span", about), remove);
    const said = [made("p", question, "ll-asked"), made("p", answer, "ll-answered")];
    // What was said stays in the language it was said in.
    for (const each of said) each.translate = false;
    line.append(...said, foot);
    return line;
  }
  function show() {
    const turns = reduced(props.value) ?? [];
    root.hidden = !turns.length;
    list.replaceChildren(...turns.map(turn));
    // What the next question follows is seen first.
    list.scrollTop = list.scrollHeight;
  }
  // The keyboard stays where it was: at the turn that took the place, or at the prompt.
  function leave(turns, place) {
    props.value = JSON.stringify(turns);
    show();
    trigger("change");
    const buttons = list.querySelectorAll("button");
    (buttons[Math.min(place, buttons.length - 1)] ?? document.querySelector("#prompt textarea"))?.focus();
  }
  root.querySelector("[data-act=clear]").addEventListener("click", () => leave([], 0));
  watch("value", show);
  show();
}
