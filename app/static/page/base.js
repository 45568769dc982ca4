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
