// The tab that is shown is part of the address: choosing one is a step that Back takes back.
const TAB = "tab", LESSON = "lesson";
// What links from before call some tabs.
const FORMER = { generate: "lab", long: "far", results: "evidence" };
// What the address of a link holds beside settings.
const noSetting = (name) => [TAB, FORM, LESSON, "view", "class", "lang"].includes(name) || name.startsWith("__");
// A sweep is a way of another tab that has an address of its own.
const SWEEP = "sweep", SWEPT = "compare";
let follows = () => {}, swept = false;
function sweeps(chosen) { swept = chosen; follows(); }
const named = (address = location) => new URL(address.href).searchParams;
const holdsSettings = (address) => [...named(address).keys()].some((name) => !noSetting(name));

function tabs(settled) {
  const all = window.gradio_config.components.filter(({ type }) => type === "tabitem").map(({ props }) => props);
  const selected = () => document.querySelector("[role=tab][aria-selected=true]")?.dataset.tabId;
  const shown = () => (swept && selected() === SWEPT ? SWEEP : selected());
  // Settings are of the tab that says so, whichever is the first.
  const wanted = () => {
    const asked = named().get(TAB), name = FORMER[asked] ?? asked;
    return name === SWEEP || all.some(({ id }) => id === name) ? name : holdsSettings() ? settled : all[0].id;
  };
  // Tabs that have no room are in a menu, by their label.
  function open(name) {
    const id = name === SWEEP ? SWEPT : name, { label } = all.find((tab) => tab.id === id);
    swept = name === SWEEP || (swept && name !== SWEPT);
    if (id === SWEPT) way(swept);
    const menu = [...document.querySelectorAll(".overflow-dropdown button")];
    (document.querySelector(`[role=tab][data-tab-id="${id}"]`) ?? menu.find((item) => english(item) === label))?.click();
  }
  async function way(sweeping) {
    const choice = () => document.querySelector(`#c-way label:${sweeping ? "last" : "first"}-of-type input`);
    if (sweeping) await until(choice);
    // What is chosen while Gradio still builds the tab is set back: it has to hold, unless another is chosen since.
    let held = 0;
    await until(() => {
      if (swept !== sweeping || !choice()) return true;
      held = choice().checked ? held + 1 : 0;
      if (!held) choice().click();
      return held === 4;
    });
  }
  function follow() {
    const id = shown();
    if (!id || id === wanted()) return;
    const url = new URL(location.href);
    url.searchParams.set(TAB, id);
    history.pushState(null, "", url);
  }
  function begin() {
    const list = document.querySelector("[role=tablist]");
    if (!list?.querySelector("[role=tab]")) return;
    waiting.disconnect();
    open(wanted());
    follows = follow;
    new MutationObserver(follow).observe(list, { subtree: true, childList: true, attributeFilter: ["aria-selected"] });
    document.addEventListener("change", ({ target }) => {
      if (target.matches("#c-way input")) sweeps(target.matches("label:last-of-type > input"));
    });
    addEventListener("popstate", () => open(wanted()));
  }
  const waiting = new MutationObserver(begin);
  waiting.observe(document.body, { subtree: true, childList: true });
  begin();
}
