// Keeps model files in the browser for the next visit. Runs in the worker.
//
// Two places, one interface: the Origin Private File System where it can be written as a stream, else the Cache API;
// else nothing is kept. In both, a file counts only once it is whole: in the file system, data counts when a marker
// that names it has been written, and a cache takes a response only when its body has ended.

const FOLDER = 'tallow-models';
const SLICE = 4 << 20;
const MARKER = '.json';
const DATA = '.data';

/** A name for an address: the same each time, and without the signs that file names cannot have. */
async function nameOf(url) {
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(url));
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, '0')).join('').slice(0, 40);
}

/** A blob's bytes in slices, so that it is never whole in memory. */
export async function* slices(blob) {
  for (let at = 0; at < blob.size; at += SLICE) {
    yield new Uint8Array(await blob.slice(at, at + SLICE).arrayBuffer());
  }
}

/** The best storage that this browser has; null where it has none (an insecure page, a private window). */
export async function openStorage() {
  if (!globalThis.isSecureContext) return null;
  try {
    if ('createSyncAccessHandle' in FileSystemFileHandle.prototype) {
      const root = await navigator.storage.getDirectory();
      return new FileStorage(await root.getDirectoryHandle(FOLDER, { create: true }));
    }
  } catch {
    // Not there, or refused: the next one may do.
  }
  try {
    return new CacheStorageOfModels(await caches.open(FOLDER));
  } catch {
    return null;
  }
}

/** Models as files: `<name>-<nonce>.data`, and `<name>.json` = {url, file, bytes} once the data is whole. */
class FileStorage {
  #folder;

  constructor(folder) {
    this.#folder = folder;
  }

  /** What is kept: [{url, bytes}]. */
  async list() {
    const found = [];
    for await (const [name] of this.#folder.entries()) {
      if (!name.endsWith(MARKER)) continue;
      const marker = await this.#marker(name);
      if (marker !== null) found.push({ url: marker.url, bytes: marker.bytes });
    }
    return found;
  }

  /** The file of an address as {size, chunks}, or null. */
  async find(url) {
    const marker = await this.#marker((await nameOf(url)) + MARKER);
    if (marker === null || marker.url !== url) return null;
    return { size: marker.bytes, chunks: slices(marker.blob) };
  }

  async remove(url) {
    const name = await nameOf(url);
    // The marker first: without it the data is only a remainder.
    await this.#folder.removeEntry(name + MARKER).catch(() => {});
    await this.#sweep();
  }

  /** A new file for an address; it counts from `commit` on. */
  async create(url) {
    await this.#sweep();
    const name = await nameOf(url);
    const file = `${name}-${crypto.randomUUID()}${DATA}`;
    const handle = await this.#folder.getFileHandle(file, { create: true });
    const data = await handle.createSyncAccessHandle();
    let bytes = 0;
    const close = () => {
      data.flush();
      data.close();
    };
    return {
      write: async (chunk) => {
        if (data.write(chunk, { at: bytes }) !== chunk.length) throw new Error("the browser's storage is full");
        bytes += chunk.length;
      },
      commit: async () => {
        close();
        await this.#write(name + MARKER, JSON.stringify({ url, file, bytes }));
        await this.#sweep();
      },
      discard: async () => {
        data.close();
        await this.#folder.removeEntry(file).catch(() => {});
      },
    };
  }

  /** A marker with its data, or null where it is broken or the data is not what it says. */
  async #marker(name) {
    try {
      const text = await (await (await this.#folder.getFileHandle(name)).getFile()).text();
      const { url, file, bytes } = JSON.parse(text);
      const blob = await (await this.#folder.getFileHandle(file)).getFile();
      return blob.size === bytes && bytes > 0 ? { url, file, bytes, blob } : null;
    } catch {
      return null;
    }
  }

  async #write(name, text) {
    const handle = await (await this.#folder.getFileHandle(name, { create: true })).createSyncAccessHandle();
    try {
      handle.truncate(0);
      handle.write(new TextEncoder().encode(text), { at: 0 });
      handle.flush();
    } finally {
      handle.close();
    }
  }

  /** Deletes data that no marker names: what broken downloads left. One that another tab is writing is locked. */
  async #sweep() {
    const names = [];
    for await (const [name] of this.#folder.entries()) names.push(name);
    const named = new Set();
    for (const name of names.filter((each) => each.endsWith(MARKER))) {
      const marker = await this.#marker(name);
      if (marker !== null) named.add(marker.file);
    }
    for (const name of names.filter((each) => each.endsWith(DATA) && !named.has(each))) {
      await this.#folder.removeEntry(name).catch(() => {});
    }
  }
}

/** Models as responses in a cache. */
class CacheStorageOfModels {
  #cache;

  constructor(cache) {
    this.#cache = cache;
  }

  async list() {
    const found = [];
    for (const request of await this.#cache.keys()) {
      const response = await this.#cache.match(request);
      if (response === undefined) continue;
      found.push({ url: decodeURIComponent(response.headers.get('x-url')), bytes: (await response.blob()).size });
    }
    return found;
  }

  async find(url) {
    const response = await this.#cache.match(await this.#key(url));
    if (response === undefined) return null;
    const blob = await response.blob();
    return { size: blob.size, chunks: slices(blob) };
  }

  async remove(url) {
    await this.#cache.delete(await this.#key(url));
  }

  async create(url) {
    const { readable, writable } = new TransformStream();
    const writer = writable.getWriter();
    const headers = { 'x-url': encodeURIComponent(url) };
    const stored = this.#cache.put(await this.#key(url), new Response(readable, { headers }));
    // A full storage ends the stream; `write` and `commit` tell.
    stored.catch((error) => writer.abort(error).catch(() => {}));
    return {
      // A copy: the stream may keep the chunk for a while.
      write: (chunk) => writer.write(chunk.slice()),
      commit: async () => {
        await writer.close();
        await stored;
      },
      discard: () => writer.abort(new Error('the download has failed')).catch(() => {}),
    };
  }

  async #key(url) {
    return new URL(`/.tallow/${await nameOf(url)}`, location.origin).href;
  }
}
