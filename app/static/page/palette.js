const dark = () => document.body.classList.contains("dark");
const palette = () => window.LENGTH_LAB_PALETTES[dark() ? "dark" : "light"];
const reduced = (value) => {
  try { return value ? JSON.parse(value) : null; } catch { return null; }
};

function resolve(value, colours) {
  if (typeof value === "string") {
    if (value[0] !== "@") return value;
    const [name, opacity] = value.slice(1).split("/");
    const colour = colours[name];
    if (!opacity || !colour) return colour ?? value;
    const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
    return `rgba(${r},${g},${b},${opacity})`;
  }
  if (Array.isArray(value)) return typeof value[0] === "number" && typeof value[1] !== "string" ? value : value.map((item) => resolve(item, colours));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolve(item, colours)]));
  }
  return value;
}
