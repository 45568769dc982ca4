const THEME = "length-lab-theme";
function setTheme(name) {
  document.body.classList.toggle("dark", name === "dark");
  localStorage.setItem(THEME, name);
}
// The theme chosen before, unless the address names one.
function keptTheme() {
  const name = localStorage.getItem(THEME);
  if (name && !new URL(location.href).searchParams.has("__theme")) setTheme(name);
}
