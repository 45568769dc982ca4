// What is pressed before the page can answer is pressed once it can: it would be lost. What is typed meanwhile is typed
// again: the form that the browser kept has come back in its place.
(() => {
  const SETTLES = 400, FIELDS = "textarea, input:not([type=radio], [type=checkbox])";
  const pressed = new Set(), typed = new Map();
  function keep(event) {
    const button = event.target.closest?.("button");
    // Tabs and their menu answer by themselves.
    if (!button || button.matches("[role=tab], .overflow-menu *")) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    button.classList.add("ll-pressed");
    pressed.add(button);
  }
  function note({ target, isTrusted }) {
    if (isTrusted && target.matches(FIELDS)) typed.set(target, target.value);
  }
  addEventListener("click", keep, true);
  addEventListener("input", note, true);
  function press() {
    for (const button of pressed) {
      button.classList.remove("ll-pressed");
      button.click();
    }
    pressed.clear();
  }
  window.answerEarly = () => {
    removeEventListener("click", keep, true);
    removeEventListener("input", note, true);
    const lost = [...typed].filter(([field, value]) => field.value !== value);
    for (const [field, value] of lost) {
      field.value = value;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    }
    setTimeout(press, lost.length ? SETTLES : 0);
  };
})();
