// The worker: WebAssembly, WebGPU, the network and the storage. The page's own thread only draws.
//
// Messages in: {id, call, ...arguments}. Messages out, with the same id: any number of {id, event}, then one of
// {id, result} or {id, failure}. {fatal} means that the worker is of no more use.

/** Time between two reports of progress or speed, in milliseconds. */
const REPORT_EVERY = 100;

let tallow = null;
let memory = null;
let storage = null;
let device = null;
let model = null;
let stopping = null;

const calls = {
  /** Loads the modules, whose addresses only the page knows, and says which kinds of device there are. */
  async start({ addresses }) {
    const [bindings, files] = await Promise.all([import(addresses.bindings), import(addresses.storage)]);
    memory = (await bindings.default({ module_or_path: addresses.wasm })).memory;
    tallow = bindings;
    storage = { ...files, place: await files.openStorage() };
    const webgpu = (await tallow.devices()).some((each) => each.kind === 'webgpu');
    return { webgpu, storage: storage.place !== null };
  },

  /** The kept models as [{url, bytes}]. */
  async stored() {
    return (await storage.place?.list()) ?? [];
  },

  async remove({ url }) {
    await storage.place?.remove(url);
  },

  /** Loads a model from an address (kept or not) or a file. */
  async load({ url, file, wanted, options }, report) {
    device = await tallow.openDevice(wanted);
    const { kind, name, software } = device.info();
    report({ device: { kind, name, software } });
    const kept = file ? null : await storage.place?.find(url);
    const source = file ? { size: file.size, chunks: storage.slices(file) } : (kept ?? (await download(url)));
    const from = file ? 'file' : kept ? 'storage' : 'network';
    const copy = from === 'network' ? await Copy.begin(url) : null;
    try {
      const loader = new tallow.ModelLoader(device, source.size ?? undefined, options);
      let loaded = 0;
      let reported = -Infinity;
      for await (const chunk of source.chunks) {
        await loader.push(chunk);
        await copy?.write(chunk);
        loaded += chunk.length;
        if (performance.now() - reported >= REPORT_EVERY) {
          reported = performance.now();
          report({ progress: { loaded, total: source.size, from } });
        }
      }
      if (source.size !== null && loaded !== source.size) {
        throw new Error(brokeOff(loaded));
      }
      report({ progress: { loaded, total: loaded, from } });
      model = await loader.finish();
      loader.free();
      report({ preparing: true });
      await model.warmUp();
      await copy?.commit();
    } catch (error) {
      await copy?.discard();
      throw error;
    }
    return { info: model.info(), memory: usage(), note: copy?.note ?? null, kept: copy !== null && copy.note === null };
  },

  /** Generates after a prompt, or answers it. */
  async generate({ prompt, chat, options }, report) {
    if (model === null) throw new Error('Load a model first.');
    stopping = new AbortController();
    const start = performance.now();
    const times = { first: null, last: start, tokens: 0 };
    const speed = () => {
      const seconds = (times.last - times.first) / 1000;
      return { firstTokenMs: times.first - start, tokensPerSecond: seconds > 0 ? (times.tokens - 1) / seconds : null };
    };
    let reported = -Infinity;
    const onText = (text, tokens) => {
      times.last = performance.now();
      if (tokens > times.tokens) times.tokens = tokens;
      times.first ??= times.last;
      const detail = times.last - reported >= REPORT_EVERY ? { ...speed(), memory: usage() } : null;
      if (detail !== null) reported = times.last;
      report({ text, tokens, detail });
    };
    const all = { ...options, signal: stopping.signal };
    const summary = chat
      ? await model.chat([{ role: 'user', content: prompt }], all, onText)
      : await model.generate(prompt, all, onText);
    return { ...summary, ...(times.first === null ? {} : speed()), memory: usage() };
  },

  async stop() {
    stopping?.abort();
  },
};

/** Bytes in use on the device and by WebAssembly. */
function usage() {
  const { kind } = device.info();
  return { kind, device: device.counters().bytes, wasm: memory.buffer.byteLength };
}

/** A file from the network as {size, chunks}; `size` is null where the server does not tell. */
async function download(url) {
  let response;
  try {
    response = await fetch(url);
  } catch {
    throw new Error(`${url} cannot be reached: no connection, or its server does not let other sites read the file.`);
  }
  if (!response.ok) {
    const meaning = { 401: 'access denied', 403: 'access denied', 404: 'not found' }[response.status];
    throw new Error(`${url}: ${meaning ?? (response.statusText || 'the server refused')} (HTTP ${response.status}).`);
  }
  // With a content encoding the length is that of the packed bytes.
  const length = response.headers.has('content-encoding') ? null : response.headers.get('content-length');
  return { size: length === null ? null : Number(length), chunks: chunksOf(response.body) };
}

function brokeOff(loaded) {
  return `The connection broke off after ${(loaded / 1e6).toFixed(1)} MB. Load it again.`;
}

/** A download's chunks (`for await` over the stream itself is not everywhere). */
async function* chunksOf(stream) {
  const reader = stream.getReader();
  let loaded = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read().catch(() => {
        throw new Error(brokeOff(loaded));
      });
      if (done) return;
      loaded += value.length;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** The copy for the next visit, written while the model loads. Where that fails, the model still loads, with a note. */
class Copy {
  note = null;
  #file = null;

  static async begin(url) {
    const copy = new Copy();
    if (storage.place === null) {
      copy.note = 'This browser keeps no files for this page, so the next visit downloads the model again.';
      return copy;
    }
    await copy.#attempt(async () => (copy.#file = await storage.place.create(url)));
    return copy;
  }

  write(chunk) {
    return this.#attempt(() => this.#file?.write(chunk));
  }

  commit() {
    return this.#attempt(() => this.#file?.commit());
  }

  async discard() {
    const file = this.#file;
    this.#file = null;
    await file?.discard();
  }

  async #attempt(action) {
    try {
      await action();
    } catch (error) {
      await this.discard().catch(() => {});
      this.note = `The model could not be kept for the next visit: ${error.message}.`;
    }
  }
}

addEventListener('message', async ({ data: { id, call, ...rest } }) => {
  try {
    const result = await calls[call](rest, (event) => postMessage({ id, event }));
    postMessage({ id, result });
  } catch (error) {
    postMessage({ id, failure: tallow?.panicMessage() ?? error?.message ?? String(error) });
  }
});

// A panic inside a promise of WebAssembly ends here; that promise is never settled.
const fatal = (reason) => postMessage({ fatal: tallow?.panicMessage() ?? reason });
addEventListener('error', (event) => fatal(event.message));
addEventListener('unhandledrejection', (event) => fatal(event.reason?.message ?? String(event.reason)));
