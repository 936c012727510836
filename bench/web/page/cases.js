// The table: what is computed, on which sizes. Inputs are in the layouts that PyTorch has (images NCHW, filters OIHW,
// attention [batch, positions, heads, width]); each participant takes them in the layout that suits it, before anything is
// timed. `weights` tells which inputs are constants of a model.

const input = (...dims) => ({ dims });
const weight = (...dims) => ({ dims, constant: true });

/** How far results may lie apart, as a part of their root mean square. */
const TOLERANCE = 1e-4;

const matmul = (size) => ({
  name: `matmul ${size}`,
  op: 'matmul',
  inputs: [input(size, size), input(size, size)],
  result: [size, size],
});

export const cases = [
  matmul(512),
  matmul(1024),
  {
    name: 'softmax, 2048 x 1024',
    op: 'softmax',
    inputs: [input(2048, 1024)],
    result: [2048, 1024],
  },
  {
    name: 'layer_norm, 2048 x 1024',
    op: 'layer_norm',
    inputs: [input(2048, 1024), weight(1024), weight(1024)],
    result: [2048, 1024],
  },
  {
    name: 'conv2d 3x3, 64 to 64 at 56',
    op: 'conv2d',
    inputs: [input(1, 64, 56, 56), weight(64, 64, 3, 3), weight(64)],
    result: [1, 64, 56, 56],
  },
  {
    name: 'causal attention, 8 heads of 64, 512 positions',
    op: 'attention',
    inputs: [input(1, 512, 8, 64), input(1, 512, 8, 64), input(1, 512, 8, 64)],
    result: [1, 512, 8, 64],
  },
  {
    name: 'MobileNet block, 24 to 144 to 24 at 56',
    op: 'block',
    inputs: [
      input(1, 24, 56, 56),
      ...[weight(144, 24, 1, 1), weight(144)],
      ...[weight(144, 1, 3, 3), weight(144)],
      ...[weight(24, 144, 1, 1), weight(24)],
    ],
    result: [1, 24, 56, 56],
  },
].map((item) => ({ tolerance: TOLERANCE, ...item }));

/** Elements of so many dimensions. */
export const count = (dims) => dims.reduce((product, size) => product * size, 1);

/** The same numbers for everyone: from -1 to 1, by a generator of 32 bits (mulberry32). */
export function values(dims, seed) {
  let state = (seed * 0x9e3779b9) >>> 0;
  return Float32Array.from({ length: count(dims) }, () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (((t ^ (t >>> 14)) >>> 0) / 2 ** 32) * 2 - 1;
  });
}

/** What is added to the scores of so many positions, for those who have no causal attention. */
export const causalMask = (positions) =>
  Float32Array.from({ length: positions ** 2 }, (_, i) => (i % positions > Math.floor(i / positions) ? -1e9 : 0));

/** A row-major array with its axes in another order: axis `i` of the result is axis `order[i]` of the data. */
export function transposed(data, dims, order) {
  const strides = dims.map((_, axis) => count(dims.slice(axis + 1)));
  const [sizes, steps] = [order.map((axis) => dims[axis]), order.map((axis) => strides[axis])];
  const result = new Float32Array(data.length);
  const index = sizes.map(() => 0);
  for (let i = 0, from = 0; i < result.length; i += 1) {
    result[i] = data[from];
    for (let axis = sizes.length - 1; axis >= 0; axis -= 1) {
      index[axis] += 1;
      from += steps[axis];
      if (index[axis] < sizes[axis]) break;
      from -= steps[axis] * sizes[axis];
      index[axis] = 0;
    }
  }
  return result;
}
