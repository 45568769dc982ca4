// Finds measurements by words, of the page's language or of English: what lacks one of them is out of sight, and so is
// its link.
function measurements(element) {
  const box = element.querySelector("input"), said = element.querySelector("[role=status]");
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    const all = [...document.querySelectorAll(".ll-measured")];
    const text = (section) => `${section.textContent} ${english(section)}`.toLowerCase();
    const found = all.filter((section) => words.every((word) => text(section).includes(word)));
    for (const section of all) section.classList.toggle("ll-unfound", !found.includes(section));
    for (const link of element.querySelectorAll("a")) link.hidden = !found.some((section) => section.querySelector(link.hash));
    said.textContent = words.length ? `${found.length} of ${all.length} measurements` : "";
  });
  // A table wider than the page is moved by the arrow keys too, once it can be focused.
  const room = new ResizeObserver(() => {
    for (const table of document.querySelectorAll(".ll-report table")) {
      if (table.scrollWidth > table.clientWidth) table.tabIndex = 0; else table.removeAttribute("tabindex");
    }
  });
  room.observe(element.closest(".tabitem"));
}
