// A small static server for the page under test: correct content types, byte ranges for the model, and a record of
// every request, so that a test can say what was fetched.

import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join, normalize, sep } from 'node:path';

const TYPES = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.ico': 'image/x-icon',
  '.js': 'text/javascript; charset=utf-8',
  '.json': 'application/json',
  '.mjs': 'text/javascript; charset=utf-8',
  '.png': 'image/png',
  '.svg': 'image/svg+xml',
  '.wasm': 'application/wasm',
  '.webmanifest': 'application/manifest+json',
  '.woff2': 'font/woff2',
};

/** The first and last byte of a `Range: bytes=A-B` header; null without one, undefined when it cannot be met. */
export function byteRange(header, size) {
  if (header === undefined) return null;
  const match = /^bytes=(\d*)-(\d*)$/.exec(header);
  if (match === null || (match[1] === '' && match[2] === '')) return null;
  const [first, last] =
    match[1] === ''
      ? [Math.max(size - Number(match[2]), 0), size - 1]
      : [Number(match[1]), match[2] === '' ? size - 1 : Math.min(Number(match[2]), size - 1)];
  return first <= last && first < size ? [first, last] : undefined;
}

/**
 * Serves the folder `site` at `/` and each entry of `files` (address to path) beside it. Returns the origin, the list
 * of requests so far as `METHOD /path`, and a function that ends it.
 */
export async function serve(site, files) {
  const requests = [];
  const server = createServer(async (request, response) => {
    const path = decodeURIComponent(new URL(request.url, 'http://localhost').pathname);
    requests.push(`${request.method} ${path}`);
    if (request.method !== 'GET' && request.method !== 'HEAD') return response.writeHead(405).end();
    const relative = normalize(path.endsWith('/') ? `${path}index.html` : path);
    const file = files[path] ?? join(site, relative);
    const found = await stat(file).catch(() => null);
    if (relative.split(sep).includes('..') || found === null || !found.isFile()) {
      // Browsers ask for this one by themselves; its absence is no error of the page.
      return response.writeHead(path === '/favicon.ico' ? 204 : 404).end();
    }
    const head = {
      'Accept-Ranges': 'bytes',
      'Cache-Control': 'no-store',
      'Content-Type': TYPES[extname(file)] ?? 'application/octet-stream',
      ETag: `"${found.size}-${found.mtimeMs}"`,
    };
    const range = byteRange(request.headers.range, found.size);
    if (range === undefined) return response.writeHead(416, { 'Content-Range': `bytes */${found.size}` }).end();
    const [first, last] = range ?? [0, found.size - 1];
    if (range !== null) head['Content-Range'] = `bytes ${first}-${last}/${found.size}`;
    response.writeHead(range === null ? 200 : 206, { ...head, 'Content-Length': last - first + 1 });
    if (request.method === 'HEAD' || found.size === 0) return response.end();
    createReadStream(file, { start: first, end: last })
      .on('error', () => response.destroy())
      .pipe(response);
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const close = () => {
    server.closeAllConnections();
    return new Promise((done) => server.close(done));
  };
  return { origin: `http://localhost:${server.address().port}`, requests, close };
}
