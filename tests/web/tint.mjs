// Compiles every .wgsl file of a folder with Tint, through Dawn's null backend: no GPU is needed, and Tint is stricter
// than naga, about uniform control flow above all.
//
//     node tint.mjs FOLDER
//
// A file's first line may name the device features and limits that it needs; it then gets a device with exactly these
// features:
//     // requires: shader-f16, subgroups, maxComputeWorkgroupStorageSize=32768
// A file without that line gets no feature and WebGPU's default limits (256 invocations, 16 KiB of workgroup memory, 8
// storage buffers), which is what tier 0 promises: its entry points are made into pipelines to check that. The null
// backend offers no more than the defaults, so a file that names a limit is compiled only. `// requires: native` marks
// a file that no browser is meant to take (cooperative matrices); it is skipped by name, as is one whose feature this
// Dawn does not have.

import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { create } from 'webgpu';
import { assert, Report } from './report.mjs';

const folder = process.argv[2];
if (folder === undefined) {
  console.error('usage: node tint.mjs FOLDER');
  process.exit(2);
}

const gpu = create(['backend=null']);
const devices = new Map();

/** The device with these features; each is made once. */
async function deviceWith(features) {
  const key = features.join(' ');
  if (!devices.has(key)) {
    const adapter = await gpu.requestAdapter();
    devices.set(key, adapter.requestDevice({ requiredFeatures: features }));
  }
  return devices.get(key);
}

/** The features and limits that the first line asks for. */
function requirements(source) {
  const line = /^\/\/\s*requires:(.*)/.exec(source);
  const words = line === null ? [] : line[1].split(/[\s,]+/).filter((word) => word !== '');
  const isLimit = (word) => word.includes('=');
  return { features: words.filter((word) => !isLimit(word)).sort(), limits: words.filter(isLimit) };
}

/** Compiles one module; throws with Tint's messages, which hold line and column. */
async function compile(source, needs) {
  const device = await deviceWith(needs.features);
  device.pushErrorScope('validation');
  const module = device.createShaderModule({ code: source });
  const { messages } = await module.getCompilationInfo();
  const entryPoints = [...source.matchAll(/@compute[^{;]*?\bfn\s+(\w+)/g)].map((match) => match[1]);
  const errors = messages.filter((message) => message.type === 'error');
  // Without a value for an override, no pipeline can be made.
  const open = /\boverride\s+\w+\s*(:\s*\w+\s*)?;/.test(source);
  if (errors.length === 0 && !open && needs.limits.length === 0) {
    for (const entryPoint of entryPoints) {
      device.createComputePipeline({ layout: 'auto', compute: { module, entryPoint } });
    }
  }
  const invalid = await device.popErrorScope();
  const lines = source.split('\n');
  assert(
    errors.length === 0,
    messages.map((m) => `${m.lineNum}:${m.linePos}: ${m.message}\n  ${lines[m.lineNum - 1] ?? ''}`).join('\n'),
  );
  assert(invalid === null, invalid?.message);
  assert(entryPoints.length > 0, 'the file has no compute entry point');
}

const adapter = await gpu.requestAdapter();
assert(adapter !== null, 'Dawn gives no adapter for its null backend');
const report = new Report();

// Tint itself is tested first: this module must be refused, or a pass below would mean nothing.
await report.test('tint refuses a barrier in non-uniform control flow', async () => {
  const source = `@compute @workgroup_size(64)
    fn main(@builtin(local_invocation_index) i: u32) { if (i < 3u) { workgroupBarrier(); } }`;
  let refusal = '';
  await compile(source, requirements(source)).catch((error) => (refusal = error.message));
  assert(refusal.includes('uniform control flow'), `it said: ${refusal}`);
});

const files = (await readdir(folder, { recursive: true })).filter((name) => name.endsWith('.wgsl')).sort();
if (files.length === 0) {
  await report.test('the folder holds WGSL', () => assert(false, `${folder} holds no .wgsl file`));
}
for (const name of files) {
  const source = await readFile(join(folder, name), 'utf8');
  const needs = requirements(source);
  const missing = needs.features.filter((feature) => !adapter.features.has(feature));
  if (missing.includes('native')) {
    report.skip(`tint ${name}`, 'for native targets only');
  } else if (missing.length > 0) {
    report.skip(`tint ${name}`, `this Dawn has no ${missing.join(', ')}`);
  } else {
    await report.test(`tint ${name}`, () => compile(source, needs));
  }
}
for (const device of devices.values()) (await device).destroy();
process.exit(report.finish());
