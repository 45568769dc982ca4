// Values of an event's inputs, numbers moved into their [least, most], an empty one to the least.
const inRange = (values, ranges) => values.map((value, i) => {
  if (!ranges[i]) return value;
  const [least, most] = [ranges[i][0] ?? -Infinity, ranges[i][1] ?? Infinity];
  const number = typeof value === "number" && Number.isFinite(value) ? value : Math.max(least, 0);
  return Math.min(Math.max(number, least), most);
});

const until = (holds) => new Promise((resolve) => {
  const look = () => (holds() ? resolve() : setTimeout(look, 100));
  look();
});
// Until what was filled in has come to the form.
const filled = () => new Promise((resolve) => setTimeout(resolve, 400));
// Presses a tab's button once it can be, and what was filled in before has come to the form, if it is wanted until then.
async function presses(selector, wanted = () => true) {
  const button = () => document.querySelector(selector);
  await until(() => !wanted() || (button()?.offsetParent && !button().disabled));
  await filled();
  if (wanted()) button().click();
}

// The wait for a run: begun by a press, ended by the run's first frame, or here where no run will come.
const waits = (name) => { delete document.body.dataset.cut; veil(false); deliver(name, { state: "busy", message: "Waiting for the model …" }); };
const veil = (veiled) => document.querySelector(".ll-stage")?.classList.toggle("ll-veiled", veiled);
function gone(name, state, message) {
  goes(false);
  if (document.querySelector(`.ll-figures[data-name=${name}]`).dataset.state === "busy") deliver(name, { state, message });
}
const CUT = "The lab did not answer for a while, and the run ended: press the button again.";
function cut(name) {
  gone(name, "bad", CUT);
  cutShort.get(name)?.({ state: "bad", message: CUT });
}
function refused(name, values, ranges) {
  const wrong = ranges.findIndex((range, i) => range && inRange([values[i]], [range])[0] !== values[i]);
  if ("cut" in document.body.dataset) return cut(name);
  const ways = "Too many runs are waiting, or something chosen is not on its list. Nothing you entered is lost: try again in a moment, or choose anew.";
  gone(name, "bad", wrong < 0 ? ways : outside(values[wrong], ranges[wrong]));
}
function outside(value, [least, most, label]) {
  const span = most == null ? `of at least ${least}` : `from ${least} to ${most.toLocaleString("en")}`;
  const wrong = typeof value === "number" ? ` in place of ${value.toLocaleString("en")}` : "";
  return `${label}: give a number ${span}${wrong}, and press the button again.`;
}
