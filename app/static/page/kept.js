// What the browser keeps of a visitor: each form as it stands, and the Lab's run that was shown last. The server reads
// both as it reads a link and a file. Where the browser forbids or has no room, nothing is kept, and nothing else changes.
const KEPT = "length-lab-form-", LINKED = "length-lab-link", LARGEST = 1_000_000;
const changed = new Map();
let keeping = false, due = 0;

function stored(storage, name, value) {
  try {
    return value === undefined ? window[storage].getItem(name) : window[storage].setItem(name, value);
  } catch { return null; }
}

// What a form holds while the page opens is not yet the visitor's, and what is pressed meanwhile waits for it.
const keeps = () => {
  keeping = true;
  answerEarly();
};
function keep(place, names, values) {
  if (!keeping) return;
  changed.set(place, Object.fromEntries(names.map((name, i) => [name, values[i]])));
  clearTimeout(due);
  due = setTimeout(write, 300);
}
function write() {
  for (const [place, form] of changed) {
    const text = JSON.stringify(form);
    if (text.length <= LARGEST) stored("localStorage", KEPT + place, text);
  }
  changed.clear();
}
addEventListener("pagehide", write);

// A link is taken once: when its page is loaded anew, what was made of it since is what counts.
const settings = () => new URLSearchParams([...named()].filter(([name]) => name === FORM || !noSetting(name))).toString();
const take = () => stored("sessionStorage", LINKED, settings());
const taken = () => stored("sessionStorage", LINKED) === settings()
  && performance.getEntriesByType("navigation")[0]?.type !== "navigate";
const anew = !taken();
let linked;
function byLink() {
  linked ??= holdsSettings() && anew;
  take();
  return linked;
}

// What a link of a tab's form holds, by the tab's place.
const linkedForms = anew && named().get(FORM) ? unpackedForm(named().get(FORM)) : Promise.resolve(null);

// The forms by their places, as JSON; the settings' own place is left to the link where there is one.
async function keptForms(settled, places) {
  const shared = await linkedForms;
  const own = places.filter((place) => !(place === settled && byLink()));
  const kept = own.map((place) => [place, reduced(stored("localStorage", KEPT + place))]);
  return JSON.stringify({ ...Object.fromEntries(kept), ...shared });
}

function store(mode, ask) {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open("length-lab", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("runs");
    opening.onerror = () => reject(opening.error);
    opening.onsuccess = () => {
      const transaction = opening.result.transaction("runs", mode);
      const ended = (then) => () => {
        opening.result.close();
        then();
      };
      try {
        const asked = ask(transaction.objectStore("runs"));
        // What is put has come only with the end: until then the browser may find that it has no room.
        transaction.oncomplete = ended(() => resolve(asked.result));
        transaction.onabort = ended(() => reject(transaction.error));
      } catch (error) { ended(() => reject(error))(); }
    };
  });
}
const LAST = "last";
function keepRun(run, figures) {
  if (!run) return;
  linked = false;
  unkept(figures, JSON.parse(run).large);
  Promise.resolve().then(() => store("readwrite", (runs) => runs.put(run, LAST))).catch(() => null);
}
// A link asks for a run of its own; those before it are remembered none the less.
async function keptRun() {
  const run = await Promise.resolve().then(() => store("readonly", (runs) => runs.get(LAST))).catch(() => null);
  return !run ? "" : byLink() ? JSON.stringify({ ...JSON.parse(run), trace: "", tree: [] }) : run;
}
