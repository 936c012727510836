// Runs the tensor library inside headless Chromium (tests/browser): the same numbers on WebGPU and on the CPU in wasm, and
// loops that must not grow.
//
//     node tensors.mjs --site FOLDER --chromium PROGRAM

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { launch } from './browser.mjs';
import { assert, Report } from './report.mjs';
import { serve } from './server.mjs';

const option = { type: 'string' };
const { values: options } = parseArgs({ options: { site: option, chromium: option } });
for (const name of ['site', 'chromium']) {
  if (options[name] === undefined) {
    console.error(`tensors.mjs: --${name} is missing`);
    process.exit(2);
  }
}

const UNREAD = 100_000;
const READ = 10_000;

const report = new Report();
const server = await serve(options.site, {});
const profile = await mkdtemp(join(tmpdir(), 'tallow-tensors-'));
const context = await launch(options.chromium, profile, true);

/** Calls a function of the module in the page. Errors of the module come here as they are. */
async function call(page, name, ...args) {
  return page.evaluate(
    async ([name, args]) => {
      const result = await window.__tensors[name](...args);
      if (result.warm === undefined) return Array.from(result);
      const plain = ({ bytes, buffers, memory }) => ({ bytes, buffers, memory });
      return { backend: result.backend, warm: plain(result.warm), last: plain(result.last) };
    },
    [name, args],
  );
}

/** Nothing may have grown after the first tenth. */
function holdFlat({ backend, warm, last }, device) {
  assert(backend === device, `it ran on ${backend}, not ${device}`);
  assert(warm.bytes > 0 && warm.buffers > 0 && warm.memory > 0, 'nothing was measured');
  const story = `${JSON.stringify(warm)} to ${JSON.stringify(last)}`;
  assert(last.buffers <= warm.buffers + 2, `buffers were created: ${story}`);
  assert(last.bytes <= warm.bytes + 65_536, `the device's memory grew: ${story}`);
  assert(last.memory <= warm.memory + (8 << 20), `the module's memory grew: ${story}`);
}

try {
  const page = await context.newPage();
  const opened = await report.test('tensors: the module loads', async () => {
    await page.goto(`${server.origin}/`);
    await page.waitForFunction(() => window.__tensors !== undefined, undefined, { timeout: 60_000 });
  });
  if (opened) {
    await report.test('tensors: WebGPU and the CPU in wasm agree', async () => {
      const cpu = await call(page, 'sample_on', 'cpu');
      const gpu = await call(page, 'sample_on', 'wgpu');
      assert(cpu.length === 65 && gpu.length === 65, `${cpu.length} and ${gpu.length} numbers`);
      // The loss, and its gradient: each by its own scale.
      for (const part of [[0, 1], [1, 65]]) {
        const [want, got] = [cpu.slice(...part), gpu.slice(...part)];
        const scale = Math.max(...want.map(Math.abs));
        const worst = Math.max(...want.map((value, i) => Math.abs(value - got[i])));
        assert(scale > 0 && worst <= 1e-4 * scale, `the largest difference is ${worst}, of ${scale}`);
      }
    });
    for (const device of ['cpu', 'wgpu']) {
      await report.test(`tensors: ${UNREAD} operations that nobody reads stay flat on ${device}`, async () => {
        holdFlat(await call(page, 'never_reads', device, UNREAD), device);
      });
      await report.test(`tensors: ${READ} steps that are read stay flat on ${device}`, async () => {
        holdFlat(await call(page, 'reads_each_time', device, READ), device);
      });
    }
  }
} finally {
  await context.close();
  await server.close();
  await rm(profile, { recursive: true, force: true });
}
process.exit(report.finish());
