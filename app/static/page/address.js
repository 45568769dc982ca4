// The link goes to the address bar and to the clipboard. The page holds what it asks for already.
function share(query, button = "#share") {
  const url = new URL(location.href);
  const kept = ["__theme", "lang"].map((name) => [name, url.searchParams.get(name)]);
  url.search = query;
  for (const [name, value] of kept) if (value) url.searchParams.set(name, value);
  history.replaceState(null, "", url);
  take();
  copy(document.querySelector(button), url.href, () => "It is in the address bar");
  return url.href;
}

// A tab's form as part of an address: packed, since a prompt may be long. What is no such thing is no form.
const FORM = "form", MOST_SIGNS = 20_000;
const through = (bytes, stream) => new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer();
async function packedForm(form) {
  const bytes = new Uint8Array(await through(JSON.stringify(form), new CompressionStream("deflate")));
  const signs = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  return signs.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}
async function unpackedForm(signs) {
  try {
    const bytes = Uint8Array.from(atob(signs.replaceAll("-", "+").replaceAll("_", "/")), (sign) => sign.charCodeAt(0));
    return reduced(new TextDecoder().decode(await through(bytes, new DecompressionStream("deflate"))));
  } catch { return null; }
}
async function shareForm(button, place, names, values) {
  const form = await packedForm({ [place]: Object.fromEntries(names.map((name, i) => [name, values[i]])) });
  if (form.length > MOST_SIGNS) return flash(document.querySelector(button), "Too long for a link");
  const tab = named().get(TAB);
  share(new URLSearchParams([...(tab ? [[TAB, tab]] : []), [FORM, form]]), button);
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
