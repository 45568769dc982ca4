// Copies what a hidden box holds: browsers have no clipboard of their own where the page came over plain HTTP from
// another machine.
async function copyBySelection(text) {
  const box = Object.assign(document.createElement("textarea"), { value: text });
  box.style.cssText = "position: fixed; top: 0; opacity: 0";
  const before = document.activeElement;
  document.body.append(box);
  box.select();
  const done = document.execCommand("copy");
  box.remove();
  before?.focus({ preventScroll: true });
  if (!done) throw new Error("the browser does not let this page copy");
}
// Gradio's own buttons ask for a clipboard too.
if (!navigator.clipboard) Object.defineProperty(navigator, "clipboard", { value: { writeText: copyBySelection } });

// Copies for a button, which then says so, or else what `otherwise` makes possible.
async function copy(button, text, otherwise) {
  const done = await navigator.clipboard.writeText(text).catch(() => copyBySelection(text)).then(() => true, () => false);
  flash(button, done ? "Copied" : otherwise());
}

// Saves the prompt and the texts that the page shows, without the server.
function saveTexts() {
  const shown = [...document.querySelectorAll(".gradio-container textarea, .ll-text, .ll-answers dl, .ll-rows tbody")].filter((e) => e.offsetParent);
  const texts = shown.map((element) => element.value ?? element.innerText).filter((text) => text.trim());
  download(texts.join("\n\n"), "length-lab.txt", "text/plain");
}

const flashing = new Map();
function flash(button, words) {
  const { name, timer } = flashing.get(button) ?? { name: english(button) };
  clearTimeout(timer);
  button.textContent = words;
  const back = () => { button.textContent = name; flashing.delete(button); };
  flashing.set(button, { name, timer: setTimeout(back, 2000) });
}
