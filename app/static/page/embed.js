// One scene in a page of its own, for a frame in another: it plays when it is opened, and again by its button.
function embed(root, scene) {
  document.body.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);
  const play = () => playedScene(root, root.querySelector(".ll-scene"), scene);
  root.querySelector("button").addEventListener("click", play);
  play();
}
// What another site's page takes to show a scene.
function embedCode({ name, title }) {
  const frame = Object.assign(document.createElement("iframe"), { src: new URL(`lab/embed/${name}`, location.href).href, title, width: 720, height: 440, loading: "lazy" });
  return frame.outerHTML;
}
// Copies it for a button.
const embeds = (selector, scene) => copy(document.querySelector(selector), embedCode(scene), () => "No clipboard");
