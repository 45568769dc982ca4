// The page's side of its connections. Gradio holds one open for as long as its page is, of which a browser has six, and
// when any breaks it loads the page anew: what was typed and shown would be lost. Here requests wait for the server to
// come back, the events that were under way end, and the page takes up what still runs.
(() => {
  const send = window.fetch.bind(window), asked = new Set(), over = new Set(), readers = new Set();
  const EVERY = 15000, SOON = 1000;
  const pause = (time) => new Promise((resolve) => setTimeout(resolve, time));
  const place = (name) => new URL(`lab/${name}/${window.__gradio_session_hash__}`, document.baseURI);
  let back = null;

  // Whether the server knows this page; null where it does not answer.
  const here = () => send(place("here"), { method: "POST", signal: AbortSignal.timeout(7000) })
    .then((answer) => (answer.ok ? answer.json() : null)).catch(() => null);
  const says = (lost) => document.querySelector(".ll-lost")?.toggleAttribute("hidden", !lost);
  function returned() {
    return back ??= (async () => {
      says(true);
      for (const reader of readers) reader.cancel().catch(() => null);
      let known;
      do { await pause(SOON); known = await here(); } while (known === null);
      says(false);
      back = null;
      takeUp(known);
    })();
  }
  function takeUp(known) {
    if (!known) document.querySelector("#hand-over")?.click();
    document.querySelector("#take-up")?.click();
  }
  async function look() {
    if (back || !window.__gradio_session_hash__) return;
    // A server that has much to do may miss one question; one that is away misses both, long before it gives runs up.
    const known = await here() ?? await here();
    if (known === null) returned(); else if (!known) takeUp(known);
  }
  setInterval(look, EVERY);
  addEventListener("pageshow", ({ persisted }) => persisted && look());
  addEventListener("pagehide", () => window.__gradio_session_hash__ && navigator.sendBeacon(place("left")));

  async function answered(ask, signal) {
    for (;;) {
      try { return await ask(); } catch (error) {
        if (signal?.aborted) return new Response();
        if (error.name === "AbortError") throw error;
        await returned();
      }
    }
  }

  // What the server says of its own end, or of a session that it does not know, is a lost connection too.
  const LOST = /"msg":\s*"unexpected_error"/;
  const ended = () => [...asked].map((event_id) => `data: ${JSON.stringify({
    msg: "process_completed", event_id, success: false, output: { error: "The connection was lost.", visible: false },
  })}\n\n`).join("") + 'data: {"msg":"close_stream"}\n\n';
  async function read(request) {
    const answer = await answered(() => send(request), request.signal);
    if (!answer.ok || !answer.body) return answer;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader(), coder = new TextEncoder();
    readers.add(reader);
    let rest = "";
    async function next() {
      for (;;) {
        const { done, value = "" } = await reader.read();
        const messages = (rest + value).split("\n\n");
        rest = messages.pop();
        if (messages.some((message) => LOST.test(message)) || (done && asked.size)) throw new Error("lost");
        for (const message of messages) {
          if (!message.includes('"process_completed"')) continue;
          const { event_id } = JSON.parse(message.slice(6));
          if (!asked.delete(event_id)) over.add(event_id);
        }
        if (messages.length || done) return { done, text: messages.map((message) => `${message}\n\n`).join("") };
      }
    }
    return new Response(new ReadableStream({
      async pull(out) {
        try {
          const { done, text } = await next();
          if (text) out.enqueue(coder.encode(text));
          if (done) out.close();
          if (done) readers.delete(reader);
        } catch {
          readers.delete(reader);
          if (request.signal.aborted) { out.close(); return; }
          await returned();
          document.body.dataset.cut = "";
          out.enqueue(coder.encode(ended()));
          asked.clear();
          out.close();
        }
      },
      cancel(reason) {
        readers.delete(reader);
        return reader.cancel(reason);
      },
    }), { headers: { "Content-Type": "text/event-stream" } });
  }

  async function join(input, init) {
    const answer = await answered(() => send(input, init));
    const { event_id } = await answer.clone().json().catch(() => ({}));
    // What failed at once may be over before this answer was read.
    if (event_id && !over.delete(event_id)) asked.add(event_id);
    return answer;
  }

  window.fetch = (input, init) => {
    const { pathname } = new URL(input.url ?? input, document.baseURI);
    if (pathname.includes("/gradio_api/heartbeat/")) return Promise.resolve(new Response(new ReadableStream()));
    if (pathname.endsWith("/gradio_api/queue/data")) return read(new Request(input, init));
    if (pathname.endsWith("/gradio_api/queue/join")) return join(input, init);
    return pathname.includes("/gradio_api/") ? answered(() => send(input, init), init?.signal) : send(input, init);
  };
})();
