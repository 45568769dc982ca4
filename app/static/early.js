// What is pressed before the page can answer is pressed once it can: it would be lost.
(() => {
  const pressed = new Set();
  function keep(event) {
    const button = event.target.closest?.("button");
    // Tabs and their menu answer by themselves.
    if (!button || button.matches("[role=tab], .overflow-menu *")) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    button.classList.add("ll-pressed");
    pressed.add(button);
  }
  addEventListener("click", keep, true);
  window.answerEarly = () => {
    removeEventListener("click", keep, true);
    for (const button of pressed) {
      button.classList.remove("ll-pressed");
      button.click();
    }
    pressed.clear();
  };
})();
