// The link goes to the address bar and to the clipboard. The page holds what it asks for already.
function share(query) {
  const url = new URL(location.href);
  const kept = ["__theme", "lang"].map((name) => [name, url.searchParams.get(name)]);
  url.search = query;
  for (const [name, value] of kept) if (value) url.searchParams.set(name, value);
  history.replaceState(null, "", url);
  take();
  copy(document.querySelector("#share"), url.href, () => "It is in the address bar");
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

// Gradio's base address would make of a link within the page one that leaves it.
document.addEventListener("click", (event) => {
  const place = event.target.closest("a[href^='#']")?.hash.slice(1);
  if (!place) return;
  event.preventDefault();
  document.getElementById(place)?.scrollIntoView({ block: "start" });
});
