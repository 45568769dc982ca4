// The page in the visitor's language: Python writes English, and here each text that shows is given in the language that
// was chosen, as app/languages/ has it. English asks for nothing. What people and models write stays as it is, and so does
// what has no words there.
const LANGUAGE = "length-lab-language", ENGLISH = "en";
const RIGHT_TO_LEFT = ["ar"];
const NOT_SAID = [
  "[translate=no]", ".ll-text", ".ll-saying", ".ll-written :is(dd, li)", ".ll-tip b", "textarea", "code", "script", "style", "svg",
  ".katex",
].join();
// Paragraphs that are one sentence with other elements in it, each of which stands for a place.
const WOVEN = ":is(.prose, .ll-teachers) :is(p, li, td, th)";
const CHOICE = "input[role=combobox]";
const ATTRIBUTES = ["placeholder", "title", "aria-label", "alt", "aria-valuetext"];
// Where the script was taken from, and with it the dictionaries.
const TAKEN_FROM = document.currentScript?.src;
// What style.css says itself.
const STYLED = ["--ll-says-empty", "--ll-says-veiled-try", "--ll-says-veiled", "--ll-says-veiled-here"];
const WATCHED = { subtree: true, childList: true, characterData: true, attributeFilter: ATTRIBUTES };
const known = new WeakMap();
let wished = ENGLISH, spoken = ENGLISH, inLanguage = (words) => words, hearing = null;

// What is to stand where `now` stands: whatever was written there since is English anew.
function said(owner, name, now) {
  const all = known.get(owner) ?? {}, before = all[name];
  const english = before?.shown === now ? before.english : now;
  return { english, shown: inLanguage(english) };
}
function say(owner, name, { english, shown }, now, write) {
  if (known.has(owner) || shown !== english) known.set(owner, { ...known.get(owner), [name]: { english, shown } });
  if (shown !== now) write(shown);
}
const sayText = (node) => say(node, "", said(node, "", node.data), node.data, (words) => { node.data = words; });
function sayAttribute(element, name) {
  const now = element.getAttribute(name);
  if (now) say(element, name, said(element, name, now), now, (words) => element.setAttribute(name, words));
}

// A text node before, between and after the elements of a paragraph.
function gaps(paragraph) {
  for (const child of [...paragraph.children]) {
    for (const [side, place] of [["previousSibling", "before"], ["nextSibling", "after"]]) {
      if (child[side]?.nodeType !== Node.TEXT_NODE) child[place]("");
    }
  }
  return [...paragraph.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
}
function sayWoven(paragraph) {
  const texts = gaps(paragraph), english = texts.map((node) => said(node, "", node.data).english);
  const shown = inLanguage(english.join("{}")).split("{}");
  texts.forEach((node, i) => {
    const words = shown.join("{}") === english.join("{}") ? inLanguage(english[i]) : shown[i];
    say(node, "", { english: english[i], shown: words }, node.data, (text) => { node.data = text; });
  });
}

function sayNode(node) {
  if (node.nodeType !== Node.TEXT_NODE) return sayAll(node);
  const parent = node.parentElement;
  if (!parent || parent.closest(NOT_SAID)) return;
  if (parent.matches(WOVEN) && parent.childElementCount) sayWoven(parent); else sayText(node);
}
// The box of a list shows its choice in the language; Gradio writes and reads the English.
function sayChoice(box) {
  let { value: english } = box, shown = english;
  const { get, set } = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value");
  Object.defineProperty(box, "value", {
    configurable: true,
    get: () => (get.call(box) === shown ? english : get.call(box)),
    set: (words) => set.call(box, shown = inLanguage(english = words)),
  });
  box.value = english;
}

function sayAll(element) {
  if (element.nodeType !== Node.ELEMENT_NODE || element.parentElement?.closest(NOT_SAID)) return;
  for (const name of ATTRIBUTES) if (element.hasAttribute(name)) sayAttribute(element, name);
  if (element.matches(CHOICE)) sayChoice(element);
  if (!element.matches(NOT_SAID)) for (const child of [...element.childNodes]) sayNode(child);
}
function sayChanged({ type, target, addedNodes, attributeName }) {
  if (type === "attributes") return target.parentElement?.closest(NOT_SAID) || sayAttribute(target, attributeName);
  if (type === "characterData") return sayNode(target);
  if (!target.closest(NOT_SAID)) addedNodes.forEach(sayNode);
}
// Before the next picture is made. What was said here is no news.
function heard(records) {
  records.forEach(sayChanged);
  hearing.takeRecords();
}

// Words that stand nowhere on the page, as those of a dialog.
const worded = (words) => inLanguage(words);

// A figure's titles and names, as Plotly is given them: what it has drawn it has measured. A drawing runs from left to
// right, whatever its words do.
const TITLES = ["text", "name", "title", "ticktext"];
function titled(figure) {
  if (spoken === ENGLISH || typeof figure !== "object" || figure === null) return figure;
  if (Array.isArray(figure)) return typeof figure[0] !== "object" || Array.isArray(figure[0]) ? figure : figure.map(titled);
  return Object.fromEntries(Object.entries(figure).map(([key, value]) => {
    if (key === "hovertemplate") return [key, inLanguage(value)];
    if (!TITLES.includes(key)) return [key, titled(value)];
    return [key, Array.isArray(value) ? value.map(drawn) : typeof value === "string" ? drawn(value) : titled(value)];
  }));
}
function drawn(words) {
  const shown = inLanguage(String(words));
  return RIGHT_TO_LEFT.includes(spoken) && shown !== words ? `\u2067${shown}\u2069` : shown;
}

// The English of what an element says.
function english(element) {
  const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  let words = "";
  while (texts.nextNode()) words += said(texts.currentNode, "", texts.currentNode.data).english;
  return words;
}

function sayStyles(root) {
  for (const name of STYLED) {
    root.style.removeProperty(name);
    const words = getComputedStyle(root).getPropertyValue(name).trim().slice(1, -1);
    root.style.setProperty(name, JSON.stringify(inLanguage(words)));
  }
}

// words: the language's dictionary, for a page that has no server to ask; it is spoken at once.
async function speak(language, words) {
  wished = language;
  if (language === spoken) return;
  const entries = language === ENGLISH ? {} : words ?? await (await fetch(new URL(`languages/${language}.json`, TAKEN_FROM))).json();
  if (language !== wished) return;
  inLanguage = language === ENGLISH ? (words) => words : dictionary(entries, RIGHT_TO_LEFT.includes(language));
  hearing ??= new MutationObserver(heard);
  hearing.disconnect();
  spoken = language;
  const root = document.documentElement;
  root.lang = language;
  root.dir = RIGHT_TO_LEFT.includes(language) ? "rtl" : "ltr";
  sayStyles(root);
  sayAll(document.body);
  if (language !== ENGLISH) hearing.observe(document.body, WATCHED);
}

// The address's language, or the one that was chosen before, or the first of the browser's that there is.
function language(there) {
  const wanted = [named().get("lang"), stored("localStorage", LANGUAGE), ...navigator.languages.map((tag) => tag.split("-")[0])];
  return wanted.find((name) => there.includes(name)) ?? ENGLISH;
}
function chosen(language) {
  stored("localStorage", LANGUAGE, language);
  if (named().has("lang")) {
    const url = new URL(location.href);
    url.searchParams.set("lang", language);
    history.replaceState(null, "", url);
  }
  speak(language);
}
function speaks(chooser) {
  document.documentElement.lang = ENGLISH;
  chooser.addEventListener("change", () => chosen(chooser.value));
  // A list shows before its script is there, and a choice made until then counts.
  if (chooser.value !== ENGLISH) return chosen(chooser.value);
  chooser.value = language([...chooser.options].map(({ value }) => value));
  speak(chooser.value);
}
