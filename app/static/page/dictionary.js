// English words in another language. entries: the English of the page, {n} for a number in it and {} for whatever else
// changes, to the same in the other language, whose places are filled in order. What they lack stays English. leftward: whether that language runs from right to left.
const LARGEST_MEMORY = 5000;
const PLACE = /\{n?\}/g;
const ANY = "(.+?)", NUMBER = "([-−+±×<≈]? ?\\d[\\d.,e]*\\d|[-−+±×<≈]? ?\\d)";
const SIGNED = /^[-−+±×<≈]/;
const literal = (words) => words.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");

function dictionary(entries, leftward = false) {
  const whole = new Map(), forms = [], memory = new Map();
  for (const [english, other] of Object.entries(entries)) {
    const places = english.match(PLACE);
    if (!places) { whole.set(english, other); continue; }
    const pieces = english.split(PLACE);
    const form = pieces.map((piece, i) => literal(piece) + (places[i] ? { "{n}": NUMBER, "{}": ANY }[places[i]] : "")).join("");
    // Most forms do not fit most words, which their longest piece shows before anything is matched.
    const mark = pieces.reduce((one, two) => (two.length > one.length ? two : one));
    forms.push({ length: pieces.join("").length, mark, form: new RegExp(`^${form}$`), other });
  }
  // Of two that fit, the one that says more words itself.
  forms.sort((one, two) => two.length - one.length);

  // Between words that run from right to left a sign would stand behind its number.
  const number = (digits) => (leftward && SIGNED.test(digits) ? `\u2066${digits}\u2069` : digits);
  function formed(words) {
    for (const { mark, form, other } of forms) {
      const found = words.includes(mark) && form.exec(words)?.slice(1);
      if (found) return other.replace(PLACE, () => say(found.shift()));
    }
  }
  const whatever = (words) => whole.get(words) ?? formed(words);
  // A sentence that stands alone in the dictionary and within another here, or the other way round.
  function elsewhere(words) {
    if (/[.!?;] /.test(words)) return;
    const stop = whole.get(".") ?? ".";
    if (words.endsWith(".")) {
      const bare = words.slice(0, -1);
      const found = whatever(bare);
      if (found) return found + stop;
      const within = whatever(bare[0].toLowerCase() + bare.slice(1));
      return within && within[0].toUpperCase() + within.slice(1) + stop;
    }
    const found = whatever(`${words[0].toUpperCase()}${words.slice(1)}.`);
    return found?.endsWith(stop) ? found.slice(0, -stop.length) : found;
  }
  // Sentences that stand one after another, each by itself, and else the parts of one; what brackets hold stays together.
  function parted(words) {
    for (const between of [/(?<=[.!?]) (?=[^\s(])/, /(?<=[:;]) (?=\S)(?![^(]*\))/]) {
      const parts = words.split(between);
      if (parts.length > 1) return parts.map(say).join(" ");
    }
    const [, sentence, mark] = words.match(/^(.+)([.:;])$/) ?? [];
    return mark && say(sentence) + (whole.get(mark) ?? mark);
  }
  function find(words) {
    if (!/\p{L}/u.test(words)) return number(words);
    return whatever(words) ?? elsewhere(words) ?? parted(words) ?? words;
  }
  function say(words) {
    if (!memory.has(words)) {
      if (memory.size >= LARGEST_MEMORY) memory.clear();
      memory.set(words, find(words));
    }
    return memory.get(words);
  }
  // Space around the words and within them is no part of what is looked up; that around them is kept.
  return (words) => {
    const [, before, inner, after] = words.match(/^(\s*)([^]*?)(\s*)$/);
    return inner && before + say(inner.replace(/\s+/g, " ")) + after;
  };
}
