// What a place's run was made with, and what the form there asks for now: a veil lies over the run while they differ. It is
// kept while the browser's tab is open, so that a page that is loaded anew tells of the run that it takes up; with a run that
// the browser keeps, its own is.
const MADE = "length-lab-made-", ROOT = "made-";
// What is watched is named on the charts.
const NAMED_THERE = ["layer", "head"];
const forms = new Map();
const formOf = (place) => forms.get(place) ?? forms.set(place, {}).get(place);

function valued(names, values, matters) {
  const form = Object.fromEntries(names.map((name, i) => [name, values[i]]));
  return JSON.stringify(names.filter((name) => !NAMED_THERE.includes(name) && matters(name, form)).map((name) => form[name]));
}
function covers(place) {
  const { made, now, shown } = formOf(place);
  document.getElementById(ROOT + place)?.classList.toggle("ll-veiled", Boolean(shown && made && now) && made !== now);
}
function formAsks(place, ...form) {
  formOf(place).now = valued(...form);
  covers(place);
}
function formPressed(place, ...form) {
  formOf(place).now = formOf(place).pressed = valued(...form);
}
// A run that begins was made with what the form held when its button was pressed, and one that is taken up with what it
// began with.
const placeOf = (element) => element.closest(`[id^=${ROOT}]`)?.id.slice(ROOT.length);
function formMade(place) {
  const form = formOf(place);
  if (form.pressed) stored("sessionStorage", MADE + place, form.pressed);
  Object.assign(form, { made: form.pressed ?? stored("sessionStorage", MADE + place), pressed: null });
  covers(place);
}
// What is shown there was made with what the form holds now, unless its button was pressed since.
function formFits(place) {
  const form = formOf(place);
  if (form.pressed) return;
  form.made = form.now;
  keepMade(place, form.made);
  covers(place);
}
function formShown(place, parts) {
  if (!(place in parts) || formOf(place).shown) return;
  formOf(place).shown = true;
  covers(place);
}
