// The page's end of the worker: calls that return promises. A fresh worker gives back all memory of the one before,
// on the GPU and in WebAssembly.

export class Engine {
  #worker;
  #calls = new Map();
  #last = 0;

  /** Starts a worker from the addresses {worker, bindings, wasm, storage}. */
  constructor(addresses) {
    this.#worker = new Worker(addresses.worker, { type: 'module', name: 'tallow' });
    this.#worker.addEventListener('message', ({ data }) => this.#receive(data));
    this.#worker.addEventListener('error', (event) => {
      event.preventDefault();
      this.#end(new Error(event.message || 'The worker could not be started.'));
    });
    /** What `start` tells: {webgpu, storage}. */
    this.started = this.call('start', { addresses });
    // Whoever awaits it sees the error; nobody has to.
    this.started.catch(() => {});
  }

  /** Calls a function of the worker's; `onEvent` takes what it reports meanwhile. */
  call(name, args = {}, onEvent = () => {}) {
    if (this.#worker === null) return Promise.reject(new Error('The worker has ended. Load the model again.'));
    const id = (this.#last += 1);
    return new Promise((resolve, reject) => {
      this.#calls.set(id, { resolve, reject, onEvent });
      this.#worker.postMessage({ id, call: name, ...args });
    });
  }

  /** Ends the worker at once. Calls that are under way fail. */
  close() {
    this.#end(new Error('Cancelled.'));
  }

  #receive({ id, event, result, failure, fatal }) {
    if (fatal !== undefined) return this.#end(new Error(fatal));
    const call = this.#calls.get(id);
    if (call === undefined) return;
    if (event !== undefined) return call.onEvent(event);
    this.#calls.delete(id);
    if (failure !== undefined) call.reject(new Error(failure));
    else call.resolve(result);
  }

  #end(error) {
    this.#worker?.terminate();
    this.#worker = null;
    for (const { reject } of this.#calls.values()) reject(error);
    this.#calls.clear();
  }
}
