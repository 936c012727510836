// Drives the real page in headless Chromium: loads a model, reads the generated text back, and holds the page to what
// it promises (WebGPU used, responsive, Stop, storage, CPU path without WebGPU, phone, keyboard).
//
//     node page.mjs --site FOLDER --model FILE --chromium PROGRAM --screenshots FOLDER
//
// The page offers elements with the ids model-url, load, model-file, progress, status, prompt, generate, stop, output,
// device, speed, memory, and `window.__tallow = {ready, device, generating, error, tokens}`. It is opened with the
// query `?device=webgpu&temperature=0&chat=0`: Chromium's WebGPU is a software adapter here, which the page would not
// choose by itself; the text is only known for greedy decoding of the bare prompt.

import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { launch } from './browser.mjs';
import { Page } from './page-hooks.mjs';
import { assert, Report } from './report.mjs';
import { serve } from './server.mjs';

const option = { type: 'string' };
const { values: options } = parseArgs({
  options: { site: option, model: option, chromium: option, screenshots: option },
});
for (const name of ['site', 'model', 'chromium', 'screenshots']) {
  if (options[name] === undefined) {
    console.error(`page.mjs: --${name} is missing`);
    process.exit(2);
  }
}

const MODEL = '/model/SmolLM2-135M-Instruct.Q4_1.gguf';
const QUERY = 'temperature=0&chat=0';
const PROMPT = 'The capital of France is';
const EXPECTED = ' Paris.';

const report = new Report();
const server = await serve(options.site, { [MODEL]: options.model });
const modelUrl = server.origin + MODEL;
const modelRequests = () => server.requests.filter((request) => request.endsWith(MODEL));
const profile = await mkdtemp(join(tmpdir(), 'tallow-page-'));
await mkdir(options.screenshots, { recursive: true });

/** Opens the page in a browser of its own, runs the steps, and checks that nothing went wrong beside them. */
async function visit(name, { webgpu, query }, steps) {
  const context = await launch(options.chromium, profile, webgpu);
  try {
    let page;
    const opened = await report.test(`${name}: the page opens`, async () => {
      page = await Page.open(context, `${server.origin}/?${query}`);
    });
    if (!opened) return;
    await steps(page);
    await report.test(`${name}: no error in the console`, () => {
      assert(page.problems.length === 0, page.problems.join('\n'));
    });
  } finally {
    await context.close();
  }
}

/** Generates from the prompt until the expected text is there, then stops. */
async function generateExpected(page) {
  await page.startGenerating(PROMPT);
  await page.until('the text to begin', (state) => state.output.length >= EXPECTED.length || !state.generating, 300);
  const { output } = await page.state();
  assert(output.startsWith(EXPECTED), `the text should begin ${JSON.stringify(EXPECTED)}: ${JSON.stringify(output)}`);
}

async function firstVisit(page) {
  await report.test('first visit: every field has a label', async () => {
    const bare = await page.fieldsWithoutLabel();
    assert(bare.length === 0, `without a label: ${bare.join(', ')}`);
  });
  await report.test('first visit: an address without a file is reported', async () => {
    await page.load(`${server.origin}/model/absent.gguf`);
    const state = await page.until('an error', (now) => now.error !== null, 60);
    assert(!state.ready, 'the page says that it is ready');
    assert(/404|not found/i.test(`${state.error} ${state.status}`), `the error does not say why: ${state.error}`);
    page.forgive(/404/);
  });
  const loaded = await report.test('first visit: the model loads by its address, with progress', async () => {
    await page.watchProgress();
    await page.load(modelUrl);
    const state = await page.until('the model', (now) => now.ready || now.error !== null, 300);
    assert(state.error === null, state.error);
    const seen = await page.seenProgress();
    assert(seen.some((share) => share > 0 && share < 1), `the progress bar was never between empty and full: ${seen}`);
    assert(modelRequests().length > 0, 'the model was not asked for');
  });
  if (!loaded) return;
  await report.test('first visit: WebGPU is the device', async () => {
    const state = await page.state();
    assert(/webgpu/i.test(state.device), `__tallow.device is ${JSON.stringify(state.device)}`);
    assert(/webgpu/i.test(state.deviceText), `#device says ${JSON.stringify(state.deviceText)}`);
  });
  await report.test('first visit: the text is right, and the page responsive meanwhile', async () => {
    await page.watchFrames();
    await generateExpected(page);
    const { frames, seconds, longest } = await page.frames();
    console.log(`    ${frames} frames in ${seconds.toFixed(1)} s, the longest pause ${longest.toFixed(0)} ms`);
    assert(frames >= 3 && frames / seconds >= 2, `only ${frames} frames in ${seconds.toFixed(1)} s`);
    assert(longest < 1000, `the page's thread was blocked for ${longest.toFixed(0)} ms`);
  });
  await report.test('first visit: Stop ends the text', async () => {
    let state = await page.state();
    if (!state.generating) await page.startGenerating(PROMPT);
    state = await page.until('a token', (now) => now.generating && now.tokens > 0, 120);
    await page.click('stop');
    await page.until('the end', (now) => !now.generating, 60);
    const stopped = await page.state();
    await page.pause(2000);
    const later = await page.state();
    assert(later.output === stopped.output && later.tokens === stopped.tokens, 'the text went on after Stop');
    assert(later.error === null, `Stop gave an error: ${later.error}`);
  });
  await report.test('first visit: speed and memory are shown', async () => {
    for (const id of ['speed', 'memory']) {
      const text = await page.text(id);
      assert(/\d/.test(text), `#${id} says ${JSON.stringify(text)}`);
    }
    console.log(`    ${await page.text('device')}, ${await page.text('speed')}, ${await page.text('memory')}`);
  });
  await report.test('first visit: the keyboard reaches every control', async () => {
    const reached = await page.tabThrough();
    const missing = ['model-url', 'load', 'model-file', 'prompt', 'generate'].filter((id) => !reached.includes(id));
    assert(missing.length === 0, `Tab does not reach ${missing.join(', ')}; it reached ${reached.join(', ')}`);
  });
  await report.test('first visit: nothing overflows on a desktop or a phone', async () => {
    for (const [name, width, height] of [['desktop', 1280, 800], ['mobile', 390, 844]]) {
      await page.screenshot(join(options.screenshots, `${name}.png`), width, height);
      const excess = await page.overflow();
      assert(excess <= 0, `${name}: the page is ${excess} pixels wider than the window of ${width}`);
    }
  });
}

async function secondVisit(page) {
  const before = modelRequests().length;
  const loaded = await report.test('second visit: the model comes from the browser\'s storage', async () => {
    await page.load(modelUrl);
    const state = await page.until('the model', (now) => now.ready || now.error !== null, 120);
    assert(state.error === null, state.error);
    const again = modelRequests().slice(before);
    assert(again.length === 0, `it was asked for again: ${again.join(', ')}`);
  });
  if (loaded) await report.test('second visit: the text is right', () => generateExpected(page));
}

async function withoutWebGpu(page) {
  await report.test('without WebGPU: the browser has none', async () => {
    assert(!(await page.hasAdapter()), 'Chromium gives a WebGPU adapter in spite of its switches');
  });
  const loaded = await report.test('without WebGPU: a local file loads', async () => {
    const before = modelRequests().length;
    await page.chooseFile(options.model);
    const state = await page.until('the model', (now) => now.ready || now.error !== null, 120);
    assert(state.error === null, state.error);
    assert(modelRequests().length === before, 'the model was asked for over the network');
  });
  if (!loaded) return;
  await report.test('without WebGPU: the page says so and uses the CPU', async () => {
    const state = await page.state();
    assert(/cpu/i.test(state.device), `__tallow.device is ${JSON.stringify(state.device)}`);
    const text = await page.text('body');
    assert(/(no|without|not|lacks?|unavailable)\b[^.]*webgpu|webgpu[^.]*\b(no|not|unavailable|missing)\b/i.test(text),
      'nothing on the page says that WebGPU is missing');
    assert(/cpu/i.test(state.deviceText), `#device says ${JSON.stringify(state.deviceText)}`);
  });
  await report.test('without WebGPU: the text is right', () => generateExpected(page));
}

try {
  await visit('first visit', { webgpu: true, query: `device=webgpu&${QUERY}` }, firstVisit);
  await visit('second visit', { webgpu: true, query: `device=webgpu&${QUERY}` }, secondVisit);
  await visit('without WebGPU', { webgpu: false, query: QUERY }, withoutWebGpu);
} catch (error) {
  await report.test('the browser runs', () => Promise.reject(error));
} finally {
  await server.close();
  await rm(profile, { recursive: true, force: true, maxRetries: 5 });
}
process.exit(report.finish());
