// TensorFlow.js with its WebGPU backend: fused operations where it has them, images NHWC and attention by heads, as its
// kernels like it.

import { causalMask, transposed } from './cases.js';

const TO_NHWC = [0, 2, 3, 1];
const TO_NCHW = [0, 3, 1, 2];
/** OIHW to HWIO; of a depthwise filter [channels, 1, h, w] to [h, w, channels, 1]. */
const FILTER = [2, 3, 1, 0];
const DEPTHWISE = [2, 3, 0, 1];
/** [batch, positions, heads, width] and [batch, heads, positions, width]. */
const HEADS = [0, 2, 1, 3];

/** What is asked of inputs (as axes in another order) and result, and the work on them. */
const operations = (tf) => ({
  matmul: { work: ([x, y]) => tf.matMul(x, y) },
  softmax: { work: ([x]) => tf.softmax(x) },
  layer_norm: {
    work([x, weight, bias]) {
      const { mean, variance } = tf.moments(x, -1, true);
      const row = (vector) => tf.reshape(vector, [1, -1]);
      return tf.batchNorm(x, mean, variance, row(bias), row(weight), 1e-5);
    },
  },
  conv2d: {
    orders: [TO_NHWC, FILTER],
    result: TO_NHWC,
    back: TO_NCHW,
    work: ([x, filter, bias]) => tf.fused.conv2d({ x, filter, strides: 1, pad: 'same', bias }),
  },
  attention: {
    orders: [HEADS, HEADS, HEADS],
    result: HEADS,
    back: HEADS,
    constants: ([{ dims }]) => [
      tf.tensor(causalMask(dims[1]), [1, 1, dims[1], dims[1]]),
      tf.scalar(1 / Math.sqrt(dims[3])),
    ],
    work: ([q, k, v], [mask, scale]) => {
      const scores = tf.add(tf.mul(tf.matMul(q, k, false, true), scale), mask);
      return tf.matMul(tf.softmax(scores), v);
    },
  },
  block: {
    orders: [TO_NHWC, FILTER, undefined, DEPTHWISE, undefined, FILTER],
    result: TO_NHWC,
    back: TO_NCHW,
    work([x, expand, bias0, depthwise, bias1, project, bias2]) {
      const common = { strides: 1, pad: 'same' };
      const wide = tf.fused.conv2d({ ...common, x, filter: expand, bias: bias0, activation: 'relu6' });
      const deep = tf.fused.depthwiseConv2d({ ...common, x: wide, filter: depthwise, bias: bias1, activation: 'relu6' });
      return tf.add(tf.fused.conv2d({ ...common, x: deep, filter: project, bias: bias2 }), x);
    },
  },
});

/** Runs a script that makes a global. */
const script = (address) =>
  new Promise((done, failed) => {
    const element = document.createElement('script');
    Object.assign(element, { src: address, onload: done, onerror: () => failed(new Error(`${address} does not load`)) });
    document.head.append(element);
  });

export async function open() {
  await script('./peers/tf-core.js');
  await script('./peers/tf-backend-webgpu.js');
  const { tf } = window;
  await tf.setBackend('webgpu');
  await tf.ready();
  if (tf.getBackend() !== 'webgpu') throw new Error(`it chose its backend ${tf.getBackend()}`);
  const all = operations(tf);
  return {
    key: 'tfjs',
    version: tf.version_core,
    async prepare(item, data) {
      const { orders = [], result, back, constants, work } = all[item.op];
      const inputs = item.inputs.map(({ dims }, i) => {
        const order = orders[i];
        if (order === undefined) return tf.tensor(data[i], dims);
        return tf.tensor(transposed(data[i], dims, order), order.map((axis) => dims[axis]));
      });
      const fixed = constants?.(item.inputs) ?? [];
      const compute = () => tf.tidy(() => work(inputs, fixed));
      return {
        async run() {
          const y = compute();
          // By itself it submits every few kernels, or when something is read.
          tf.backend().endComputePassEncoder();
          tf.backend().submitQueue();
          y.dispose();
        },
        async values() {
          const y = compute();
          const values = await y.data();
          const dims = result?.map((axis) => item.result[axis]);
          y.dispose();
          return back === undefined ? values : transposed(values, dims, back);
        },
        free: () => tf.dispose([inputs, fixed]),
      };
    },
  };
}
