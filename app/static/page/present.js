// Scenes over the whole page, one after another, each played from what came with the page: nothing is asked of the
// server. Scenes come as the property `scenes`.
let openScenes = () => {};
function present(element, props) {
  const root = element.querySelector(".ll-present"), stage = root.querySelector(".ll-scene");
  const button = (name) => root.querySelector(`[data-act=${name}]`);
  let at = 0, stop = () => {}, down = null, whole = false;

  function show(number) {
    at = Math.min(Math.max(number, 0), props.scenes.length - 1);
    const scene = props.scenes[at];
    // A run's title is its prompt, which stays as it was typed.
    Object.assign(root.querySelector("h2"), { textContent: scene.title, translate: scene.embeds ?? false });
    root.querySelector(".ll-look").textContent = scene.look;
    root.querySelector(".ll-place").textContent = props.scenes.length === 1 ? "Recorded" : `${at + 1} of ${props.scenes.length}, recorded`;
    button("previous").disabled = at === 0;
    button("next").disabled = at === props.scenes.length - 1;
    for (const name of ["previous", "next"]) button(name).hidden = props.scenes.length === 1;
    button("embed").hidden = !scene.embeds;
    root.dataset.scene = scene.name;
    root.scrollTop = 0;
    root.focus();
    play();
  }
  function play() {
    stop();
    stop = playedScene(root, stage, props.scenes[at]);
  }

  function open(name) {
    if (root.open || !props.scenes.length) return;
    root.showModal();
    // The browser gives the whole screen to a hand alone.
    const full = navigator.userActivation?.isActive ? document.documentElement.requestFullscreen?.() : null;
    full?.then(() => { whole = true; }, () => null);
    show(props.scenes.findIndex((scene) => scene.name === name));
  }
  root.addEventListener("close", () => {
    stop();
    cleared(stage);
    if (whole && document.fullscreenElement) document.exitFullscreen();
    whole = false;
  });
  // The browser keeps Escape for itself while the page has the whole screen.
  document.addEventListener("fullscreenchange", () => { if (whole && !document.fullscreenElement) root.close(); });
  const acts = { close: () => root.close(), previous: () => show(at - 1), next: () => show(at + 1), again: play,
    embed: () => embeds(".ll-present [data-act=embed]", props.scenes[at]) };
  root.addEventListener("click", (event) => acts[event.target.closest("[data-act]")?.dataset.act]?.());
  root.addEventListener("keydown", (event) => {
    event.stopPropagation();
    const pressed = event.key === " " && event.target.matches("button");
    const act = { ArrowRight: "next", PageDown: "next", " ": "next", ArrowLeft: "previous", PageUp: "previous" }[event.key];
    if (!act || pressed) return;
    event.preventDefault();
    acts[act]();
  });
  root.addEventListener("pointerdown", (event) => { down = event.isPrimary ? [event.clientX, event.clientY] : null; });
  root.addEventListener("pointerup", (event) => {
    const [across, up] = down ? [event.clientX - down[0], event.clientY - down[1]] : [0, 0];
    down = null;
    if (Math.abs(across) > 60 && Math.abs(across) > 2 * Math.abs(up)) acts[across < 0 ? "next" : "previous"]();
  });
  openScenes = open;
  root.dataset.scenes = props.scenes.length;
}
document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-present], [data-plays]");
  if (opener) openScenes(opener.dataset.plays);
});
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable=true]");
  if (event.key.toLowerCase() === "p" && !event.ctrlKey && !event.metaKey && !event.altKey && !typing) openScenes();
});
