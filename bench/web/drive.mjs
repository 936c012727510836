// Opens the page of `cargo xtask bench web` in headless Chromium, and has it measure case by case. The last line is what it
// found, as JSON.
//
//     node drive.mjs --module FOLDER --chromium PROGRAM [--packages FOLDER] [--case TEXT] [--seconds S]

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { launch } from '../../tests/web/browser.mjs';
import { serve } from '../../tests/web/server.mjs';

const option = { type: 'string' };
const { values: options } = parseArgs({
  options: { module: option, chromium: option, packages: option, case: option, seconds: option },
});
for (const name of ['module', 'chromium']) {
  if (options[name] === undefined) {
    console.error(`drive.mjs: --${name} is missing`);
    process.exit(2);
  }
}

/** A turn that takes this long has failed. */
const PATIENCE = 240_000;
/** Rounds of a fast case. */
const MOST = 200;

const files = {
  '/tallow/tallow_bench_web.js': join(options.module, 'tallow_bench_web.js'),
  '/tallow/tallow_bench_web_bg.wasm': join(options.module, 'tallow_bench_web_bg.wasm'),
};
if (options.packages !== undefined) {
  const at = (...parts) => join(options.packages, 'node_modules', ...parts);
  for (const name of ['mjs', 'wasm'].map((type) => `ort-wasm-simd-threaded.asyncify.${type}`)) {
    files[`/peers/${name}`] = at('onnxruntime-web', 'dist', name);
  }
  Object.assign(files, {
    '/peers/ort.mjs': at('onnxruntime-web', 'dist', 'ort.webgpu.bundle.min.mjs'),
    '/peers/tf-core.js': at('@tensorflow', 'tfjs-core', 'dist', 'tf-core.min.js'),
    '/peers/tf-backend-webgpu.js': at('@tensorflow', 'tfjs-backend-webgpu', 'dist', 'tf-backend-webgpu.min.js'),
  });
}

const server = await serve(fileURLToPath(new URL('page', import.meta.url)), files);
const profile = await mkdtemp(join(tmpdir(), 'tallow-bench-'));
const context = await launch(options.chromium, profile, true);
try {
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  page.on('console', (message) => {
    if (message.type() === 'error') console.error(`page: ${message.text()}`);
  });
  page.on('pageerror', (error) => console.error(`page: uncaught: ${error.message}`));
  await page.goto(`${server.origin}/`);
  await page.waitForFunction(() => window.__bench !== undefined);
  const found = { browser: context.browser()?.version() ?? '', participants: [], absent: [], outcomes: [] };
  Object.assign(found, await page.evaluate(() => window.__bench.about()));
  for (const key of options.packages === undefined ? ['tallow'] : ['tallow', 'ort', 'tfjs']) {
    try {
      found.participants.push(await page.evaluate((name) => window.__bench.open(name), key));
    } catch (error) {
      if (key === 'tallow') throw error;
      found.absent.push([key, error.message.split('\n')[0]]);
    }
  }
  const names = await page.evaluate(() => window.__bench.names);
  for (const [i, name] of names.entries()) {
    if (!name.includes(options.case ?? '')) continue;
    console.log(`measuring ${name}`);
    const limits = { seconds: Number(options.seconds ?? 10), most: MOST };
    found.outcomes.push(await page.evaluate(([at, how]) => window.__bench.measure(at, how), [i, limits]));
  }
  console.log(JSON.stringify(found));
} finally {
  await context.close();
  await server.close();
  await rm(profile, { recursive: true, force: true });
}
