// Writes ONNX models: as much of the format (protocol buffers, onnx.proto) as a graph of a few nodes on f32 needs.

const FLOAT = 1;
const [ATTRIBUTE_FLOAT, ATTRIBUTE_INT, ATTRIBUTE_INTS] = [1, 2, 7];

function varint(value) {
  const bytes = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  do {
    const low = Number(rest & 0x7fn);
    rest >>= 7n;
    bytes.push(rest === 0n ? low : low | 0x80);
  } while (rest !== 0n);
  return bytes;
}

const concat = (parts) => {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  parts.reduce((at, part) => (bytes.set(part, at), at + part.length), 0);
  return bytes;
};
const number = (field, value) => [...varint(field << 3), ...varint(value)];
const float = (field, value) => [...varint((field << 3) | 5), ...new Uint8Array(Float32Array.of(value).buffer)];
const block = (field, bytes) => concat([varint((field << 3) | 2), varint(bytes.length), bytes]);
const text = (field, value) => block(field, new TextEncoder().encode(value));

function attribute(name, value) {
  if (Array.isArray(value)) {
    return concat([text(1, name), ...value.map((item) => number(8, item)), number(20, ATTRIBUTE_INTS)]);
  }
  // `{ float: 1 }` where a whole number is meant as a float.
  return typeof value === 'object'
    ? concat([text(1, name), float(2, value.float), number(20, ATTRIBUTE_FLOAT)])
    : concat([text(1, name), number(3, value), number(20, ATTRIBUTE_INT)]);
}

const node = ({ type, inputs, output, attributes = {}, domain = '' }) =>
  concat([
    ...inputs.map((name) => text(1, name)),
    text(2, output),
    text(4, type),
    ...Object.entries(attributes).map(([name, value]) => block(5, attribute(name, value))),
    text(7, domain),
  ]);

const tensor = ({ name, dims, data }) =>
  concat([
    ...dims.map((size) => number(1, size)),
    number(2, FLOAT),
    text(8, name),
    block(9, new Uint8Array(data.buffer, data.byteOffset, data.byteLength)),
  ]);

const valueInfo = ({ name, dims }) => {
  const shape = concat(dims.map((size) => block(1, number(1, size))));
  const type = concat([number(1, FLOAT), block(2, shape)]);
  return concat([text(1, name), block(2, block(1, type))]);
};

/**
 * A model's bytes: `inputs` and `outputs` are `{ name, dims }`, `constants` have `data` too, `nodes` are
 * `{ type, inputs, output, attributes, domain }`.
 */
export function model({ inputs, outputs, constants, nodes }) {
  const graph = concat([
    ...nodes.map((item) => block(1, node(item))),
    text(2, 'case'),
    ...constants.map((item) => block(5, tensor(item))),
    ...inputs.map((item) => block(11, valueInfo(item))),
    ...outputs.map((item) => block(12, valueInfo(item))),
  ]);
  const opset = (domain, version) => block(8, concat([text(1, domain), number(2, version)]));
  return concat([number(1, 8), block(7, graph), opset('', 17), opset('com.microsoft', 1)]);
}
