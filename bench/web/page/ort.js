// ONNX Runtime Web with its WebGPU provider. Weights are constants of the model, so that it may prepare them when it loads;
// inputs and results are GPU buffers.

import { causalMask, count, transposed } from './cases.js';
import { model } from './onnx.js';

/** [batch, positions, heads, width] as [batch, heads, positions, width] and back, and as [batch, heads, width, positions]. */
const HEADS = [0, 2, 1, 3];
const KEYS = [0, 2, 3, 1];

const conv = (inputs, output, size, group = 1) => ({
  type: 'Conv',
  inputs,
  output,
  attributes: { kernel_shape: [size, size], pads: Array(4).fill(size >> 1), group },
});
const relu6 = (input, output) => ({ type: 'Clip', inputs: [input, 'zero', 'six'], output });

/** Nodes from i0, i1, ... to `result`. */
const graphs = {
  matmul: () => [{ type: 'MatMul', inputs: ['i0', 'i1'], output: 'result' }],
  softmax: () => [{ type: 'Softmax', inputs: ['i0'], output: 'result', attributes: { axis: -1 } }],
  layer_norm: () => [
    {
      type: 'LayerNormalization',
      inputs: ['i0', 'i1', 'i2'],
      output: 'result',
      attributes: { axis: -1, epsilon: { float: 1e-5 } },
    },
  ],
  conv2d: () => [conv(['i0', 'i1', 'i2'], 'result', 3)],
  attention: ({ inputs }) => [
    {
      type: 'MultiHeadAttention',
      domain: 'com.microsoft',
      inputs: ['i0', 'i1', 'i2'],
      output: 'result',
      attributes: { num_heads: inputs[0].dims[2], unidirectional: 1 },
    },
  ],
  // Its shader for long attention is wrong on devices with subgroups of 4 (Chromium's software adapter).
  plain_attention: () => [
    { type: 'MatMul', inputs: ['i0', 'i1'], output: 'products' },
    { type: 'Mul', inputs: ['products', 'scale'], output: 'scaled' },
    { type: 'Add', inputs: ['scaled', 'mask'], output: 'scores' },
    { type: 'Softmax', inputs: ['scores'], output: 'shares', attributes: { axis: -1 } },
    { type: 'MatMul', inputs: ['shares', 'i2'], output: 'result' },
  ],
  block: ({ inputs }) => [
    conv(['i0', 'i1', 'i2'], 'wide', 1),
    relu6('wide', 'wide6'),
    conv(['wide6', 'i3', 'i4'], 'deep', 3, inputs[3].dims[0]),
    relu6('deep', 'deep6'),
    conv(['deep6', 'i5', 'i6'], 'narrow', 1),
    { type: 'Add', inputs: ['narrow', 'i0'], output: 'result' },
  ],
};

const scalar = (name, value) => ({ name, dims: [], data: Float32Array.of(value) });

/** Constants of a graph that are no inputs of the case. */
const constants = {
  plain_attention: ([{ dims }]) => [
    { name: 'mask', dims: [1, 1, dims[1], dims[1]], data: causalMask(dims[1]) },
    scalar('scale', 1 / Math.sqrt(dims[3])),
  ],
  block: () => [scalar('zero', 0), scalar('six', 6)],
};

/** [batch, positions, heads, width] with heads side by side, as the operator takes them. */
const sideBySide = ([batch, positions, heads, width]) => [batch, positions, heads * width];

/** Ways to compute an operation: the first that is right is measured. Inputs may go in with their axes in other orders. */
const ways = {
  attention: [
    { graph: 'attention', shape: sideBySide },
    { graph: 'plain_attention', orders: [HEADS, KEYS, HEADS], result: HEADS, back: HEADS },
  ],
};

export async function open() {
  const ort = await import('./peers/ort.mjs');
  ort.env.wasm.wasmPaths = new URL('./peers/', import.meta.url).href;
  // Threads would need a page that is isolated from others; the work is on the GPU anyway.
  ort.env.wasm.numThreads = 1;
  ort.env.logLevel = 'error';
  const options = {
    executionProviders: ['webgpu'],
    graphOptimizationLevel: 'all',
    preferredOutputLocation: 'gpu-buffer',
  };
  return {
    key: 'ort',
    version: ort.env.versions.web,
    ways: ({ op }) => ways[op]?.length ?? 1,
    async prepare(item, data, way) {
      const { graph, shape = (dims) => dims, orders = [], result, back } = ways[item.op]?.[way] ?? { graph: item.op };
      const all = item.inputs.map(({ dims, constant }, i) => {
        const order = orders[i] ?? dims.map((_, axis) => axis);
        const sizes = shape(order.map((axis) => dims[axis]));
        return { name: `i${i}`, dims: sizes, constant, data: transposed(data[i], dims, order) };
      });
      const resultDims = shape(result?.map((axis) => item.result[axis]) ?? item.result);
      const session = await ort.InferenceSession.create(
        model({
          inputs: all.filter(({ constant }) => !constant),
          outputs: [{ name: 'result', dims: resultDims }],
          constants: [...all.filter(({ constant }) => constant), ...(constants[graph]?.(item.inputs) ?? [])],
          nodes: graphs[graph](item),
        }),
        options,
      );
      const device = await ort.env.webgpu.device;
      const feeds = {};
      const buffers = [];
      for (const { name, dims, data: values } of all.filter(({ constant }) => !constant)) {
        const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
        const buffer = device.createBuffer({ size: count(dims) * 4, usage });
        device.queue.writeBuffer(buffer, 0, values);
        buffers.push(buffer);
        feeds[name] = ort.Tensor.fromGpuBuffer(buffer, { dataType: 'float32', dims });
      }
      return {
        async run() {
          const { result: tensor } = await session.run(feeds);
          tensor.dispose();
        },
        async values() {
          const { result: tensor } = await session.run(feeds);
          const values = new Float32Array(await tensor.getData());
          tensor.dispose();
          return back === undefined ? values : transposed(values, resultDims, back);
        },
        async free() {
          await session.release();
          buffers.forEach((buffer) => buffer.destroy());
        },
      };
    },
  };
}
