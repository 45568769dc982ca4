// One scene in a page of its own, for a frame in another: it plays when it is opened, in its address's language or the
// browser's, and again by its button.
function embed(root, scene, languages) {
  document.body.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);
  const play = () => playedScene(root, root.querySelector(".ll-scene"), scene);
  root.querySelector("button").addEventListener("click", play);
  // Without the words of its language it plays in English.
  speak(language(languages)).catch(() => null).then(() => {
    document.title = `Length Lab: ${root.querySelector("h1").textContent}`;
    play();
  });
}
// What another site's page takes to show a scene.
function embedCode({ name, title }) {
  const address = new URL(`lab/embed/${name}`, location.href);
  if (spoken !== ENGLISH) address.searchParams.set("lang", spoken);
  const frame = Object.assign(document.createElement("iframe"), { src: address.href, title: worded(title), width: 720, height: 440, loading: "lazy" });
  return frame.outerHTML;
}
// Copies it for a button.
const embeds = (selector, scene) => copy(document.querySelector(selector), embedCode(scene), () => "No clipboard");
