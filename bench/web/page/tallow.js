// Tallow: its wasm module is bench/web.

import init, { Bench } from './tallow/tallow_bench_web.js';

export async function open() {
  await init();
  const bench = await Bench.open();
  return {
    key: 'tallow',
    version: Bench.version(),
    async prepare({ op, inputs }, data) {
      for (const [i, { dims }] of inputs.entries()) await bench.input(Uint32Array.from(dims), data[i]);
      const prepared = bench.prepare(op);
      return { run: () => prepared.run(), values: () => prepared.values(), free: () => prepared.free() };
    },
  };
}
