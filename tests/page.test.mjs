// The page's script without a browser: what it does with colours, lines, numbers and frames. `test_page_script.py` runs
// this with node, where that is installed; PAGE names the script.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { beforeEach, test } from "node:test";
import vm from "node:vm";

const script = new vm.Script(readFileSync(process.env.PAGE, "utf8"), { filename: "page.js" });
let page, pictures, now;

// The next picture that the browser makes.
function picture() {
  now += 1000;
  const asked = pictures;
  pictures = [];
  for (const make of asked) make();
}

beforeEach(() => {
  [pictures, now] = [[], 0];
  const nowhere = {
    addEventListener() {}, querySelector: () => null, querySelectorAll: () => [],
    body: { classList: { contains: () => false }, dataset: {} },
  };
  page = vm.createContext({
    document: nowhere, navigator: { hardwareConcurrency: 8, clipboard: {} }, performance: { now: () => now },
    requestAnimationFrame: (make) => pictures.push(make), cancelAnimationFrame() {}, setTimeout() {}, clearTimeout() {},
    addEventListener() {}, URL, URLSearchParams, location: { search: "", href: "http://127.0.0.1:7860/" },
    LENGTH_LAB_PALETTES: { light: { c1: "#0072b2" } },
  });
  page.window = page;
  script.runInContext(page);
  pictures = [];
});

// The value of an expression over the script's own names.
const value = (expression) => vm.runInContext(expression, page);
const plain = (expression) => JSON.parse(JSON.stringify(value(expression)));

test("colour names become the theme's colours, and numbers are left as they are", () => {
  assert.deepEqual(plain('resolve({a: ["@c1", "@c1/0.5", "plain", "@unknown"], b: {c: "@c1"}}, palette())'), {
    a: ["#0072b2", "rgba(0,114,178,0.5)", "plain", "@unknown"], b: { c: "#0072b2" },
  });
  assert.ok(value("(() => { const numbers = [1, 2]; return resolve({ numbers }, palette()).numbers === numbers; })()"));
});

test("a line is broken where a number is missing, and may go in steps", () => {
  assert.equal(value("path([[0, 1], [2, 3], [NaN, 4], [5, 6]], false)"), "M0,1L2,3M5,6");
  assert.equal(value("path([[0, 1], [2, 3]], true)"), "M0,1H2V3");
});

test("numbers of a form are moved into their ranges, an empty one to the least", () => {
  const moved = "inRange([5, -1, null, 'text', 99], [[0, 3], [0, 3], [2, 8], null, [0, null]])";
  assert.deepEqual(plain(moved), [3, 0, 2, "text", 99]);
});

test("what comes before its component is kept, and later frames are handed on", () => {
  value("var got = []; deliver('length', 1); receives('length', (value, running) => got.push([value, running]))");
  value("deliver('length', 2, true); deliver('other', 3)");
  assert.deepEqual(plain("got"), [[1, false], [2, true]]);
});

test("a picture has one whole drawing at most, of a chart whose lines cannot be moved before others", () => {
  value(`
    var drawn = [];
    const made = (name, moved, due) => ({
      running: true, visible: () => true, moved: () => moved, due: () => due, fresh: () => false, draw() { drawn.push(name); },
    });
    schedule(made("late", true, 5)); schedule(made("new", false, 0)); schedule(made("fresh", true, -5));`);
  picture();
  assert.deepEqual(plain("drawn"), ["new"]);
  now += 1000;
  value("schedule()");
  picture();
  assert.deepEqual(plain("drawn"), ["new", "late"]);
  assert.equal(pictures.length, 0);
});

test("the first drawings of a run wait for no rest, as dear as they are", () => {
  page.takes = (milliseconds) => { now += milliseconds; };
  value(`
    var first = [];
    const begun = (name) => ({
      running: true, visible: () => true, moved: () => false, due: () => 0, fresh: () => !first.includes(name), draw() { takes(100); first.push(name); },
    });
    schedule(begun("one")); schedule(begun("two")); schedule(begun("three"));`);
  for (const _ of [1, 2, 3]) picture();
  assert.deepEqual(plain("first"), ["one", "two", "three"]);
});

test("that writing began is said once a run, with its first token, and is gone at its end", () => {
  const heard = { textContent: "" };
  page.document.querySelector = () => heard;
  const after = (running, ...texts) => { value(`begins(${running}, ${JSON.stringify({ lane: texts })})`); return heard.textContent; };
  assert.equal(after(true, 0, [7]), "");
  assert.equal(after(true, 0, [7, ["a"]]), "Writing began.");
  heard.textContent = "untouched";
  assert.equal(after(true, 2, [["b"]]), "untouched");
  assert.equal(after(false, 3, []), "");
  assert.equal(after(true, 0, [8, ["c"]]), "Writing began.");
});

test("a dictionary gives whole texts, those with numbers and names in them, and sentences one by one", () => {
  value(`var say = dictionary({
    "Write": "Schreiben", "{n} tokens": "{n} Token", "Table of {}": "Tabelle: {}", "It rains.": "Es regnet.", ";": "；",
    "{n} tokens after {} of {n} lines": "{n} Token nach {} von {n} Zeilen", "by {}": "durch {}",
  })`);
  assert.equal(value('say("Write")'), "Schreiben");
  assert.equal(value('say("  Write\\n")'), "  Schreiben\n");
  assert.equal(value('say("1,024 tokens")'), "1,024 Token");
  assert.equal(value('say("many tokens")'), "many tokens");
  assert.equal(value('say("Table of Write")'), "Tabelle: Schreiben");
  assert.equal(value('say("3 tokens after Write of −2.5 lines")'), "3 Token nach Schreiben von −2.5 Zeilen");
  assert.equal(value('say("It rains. Never heard of. 5 tokens.")'), "Es regnet. Never heard of. 5 Token.");
  assert.equal(value('say("by many; Write")'), "durch many； Schreiben");
  assert.equal(value('say("")'), "");
});

test("a sentence is the same alone and within another", () => {
  value(`var say = dictionary({ ".": "。", "The text is {}.": "Der Text ist {}。", "left out: {}": "weg: {}", "none for {}": "keins für {}" })`);
  assert.equal(value('say("left out: the text is long")'), "weg: Der Text ist long");
  assert.equal(value('say("None for two.")'), "Keins für two。");
  assert.equal(value('say("None is known. The text is long.")'), "None is known。 Der Text ist long。");
  value('say = dictionary({ "A": "eins", "B": "zwei", "{} at {n}": "{} bei {n}" })');
  assert.equal(value('say("A at -1; B at 2.")'), "eins bei -1; zwei bei 2.");
});

test("among words that run from right to left a sign stays before its number", () => {
  value('var say = dictionary({ "{n} of {n}": "{n} من {n}" }, true)');
  assert.equal(value('say("+3 of 5")'), "\u2066+3\u2069 من 5");
  assert.equal(value('say("−1")'), "\u2066−1\u2069");
});

test("a figure's titles and names are given in the language, its numbers are left alone", () => {
  value('spoken = "de"; inLanguage = dictionary({ "tokens": "Token", "plain": "unverändert" })');
  assert.deepEqual(plain('titled({ x: [1, 2], name: "plain", axis: { title: { text: "tokens" }, ticktext: ["plain", "1k"] } })'), {
    x: [1, 2], name: "unverändert", axis: { title: { text: "Token" }, ticktext: ["unverändert", "1k"] },
  });
});

test("a row goes before those of a later number, and else to the end", () => {
  const rows = "[{ number: 1 }, { number: 4 }, { number: 6 }]";
  assert.deepEqual([0, 2, 5, 9].map((number) => value(`placed(${rows}, ${number})`)), [0, 1, 2, 3]);
});

test("boxes are never moved, but drawn anew", () => {
  const plot = "{ _fullData: [{ uid: 1 }], _fullLayout: {}, querySelector: () => null, querySelectorAll: () => [] }";
  assert.equal(value(`move(${plot}, [{ type: "box", x: ["20"], y: [18] }])`), false);
});

test("a veil lies over a run that its form no longer asks for, from the run's first frame on", () => {
  value(`
    var veiled = false, heard;
    var root = { id: "made-here", classList: { toggle: (name, on) => { veiled = on; } } };
    document.getElementById = (id) => (id === root.id ? root : null);
    document.addEventListener = () => {};
    var EventSource = function () { return source; }, source = { close() {} };
    var element = { closest: () => root }, props = { value: null };
    stream(element, props, (name, handle) => { heard = handle; }, {});
    var counts = (name, form) => name !== "D_seed" || form.count > 3;
    var says = (call, ...values) => call("here", ["prompt", "count", "D_seed", "layer"], values, counts);
    says(formAsks, "one", 3, 0, 0)`);
  assert.equal(value("says(formPressed, 'two', 3, 0, 0), veiled"), false);
  value(`props.value = '{"follow": "a"}'; heard()`);
  value("source.onmessage({ data: JSON.stringify({ parts: { here: {} }, texts: {}, running: true }) })");
  assert.equal(value("veiled"), false);
  assert.equal(value("says(formAsks, 'three', 3, 0, 0), veiled"), true);
  assert.equal(value("says(formAsks, 'two', 3, 9, 7), veiled"), false);
  assert.equal(value("says(formAsks, 'two', 4, 9, 7), veiled"), true);
  assert.equal(value("says(formPressed, 'two', 4, 9, 7), veiled"), true);
  value(`props.value = '{"follow": "b"}'; heard()`);
  assert.equal(value("veiled"), false);
});
