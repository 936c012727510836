// Counts what any library asks of WebGPU, by wrapping the browser's own functions. Imported before a library is loaded.
// While nothing is counted, libraries call the browser's functions directly; only bind groups are always looked at when
// they are made, since they are kept.
//
// What is counted: dispatches; submits; `bound`, the bytes of the storage buffers (or parts of them) that are bound at each
// dispatch, which is what a kernel can read and write; `uploaded`, by writeBuffer and in buffers that are mapped when they
// are made; `copied` from buffer to buffer; `read`, mapped for reading.

const none = () => ({ dispatches: 0, submits: 0, bound: 0, uploaded: 0, copied: 0, read: 0 });
let counts = none();

/** Bytes of the storage buffers of a bind group. */
const sizes = new WeakMap();
/** Bytes by bind group number, of each compute pass. */
const passes = new WeakMap();

function bytesOf({ resource }) {
  const buffer = resource instanceof GPUBuffer ? resource : resource.buffer;
  if (!(buffer instanceof GPUBuffer) || (buffer.usage & GPUBufferUsage.STORAGE) === 0) return 0;
  return resource.size ?? buffer.size - (resource.offset ?? 0);
}

const createBindGroup = GPUDevice.prototype.createBindGroup;
GPUDevice.prototype.createBindGroup = function (descriptor) {
  const group = createBindGroup.call(this, descriptor);
  sizes.set(group, [...descriptor.entries].reduce((sum, entry) => sum + bytesOf(entry), 0));
  return group;
};

function dispatched(pass) {
  counts.dispatches += 1;
  for (const bytes of passes.get(pass)?.values() ?? []) counts.bound += bytes;
}

const watched = [
  [GPUComputePassEncoder, 'setBindGroup', (pass, [number, group]) => {
    if (!passes.has(pass)) passes.set(pass, new Map());
    passes.get(pass).set(number, sizes.get(group) ?? 0);
  }],
  [GPUComputePassEncoder, 'dispatchWorkgroups', dispatched],
  [GPUComputePassEncoder, 'dispatchWorkgroupsIndirect', dispatched],
  [GPUQueue, 'submit', () => (counts.submits += 1)],
  [GPUQueue, 'writeBuffer', (_, [, , data, from = 0, size]) => {
    const unit = data.BYTES_PER_ELEMENT ?? 1;
    counts.uploaded += size === undefined ? data.byteLength - from * unit : size * unit;
  }],
  [GPUDevice, 'createBuffer', (_, [{ mappedAtCreation, size }]) => {
    if (mappedAtCreation) counts.uploaded += size;
  }],
  [GPUCommandEncoder, 'copyBufferToBuffer', (_, [source, from, , , size]) => {
    counts.copied += typeof from === 'number' ? size : source.size;
  }],
  [GPUBuffer, 'mapAsync', (buffer, [mode, from = 0, size = buffer.size - from]) => {
    if ((mode & GPUMapMode.READ) !== 0) counts.read += size;
  }],
];

/** What `work` asks of WebGPU. */
export async function counted(work) {
  counts = none();
  const own = watched.map(([type, name]) => type.prototype[name]);
  watched.forEach(([type, name, note], i) => {
    type.prototype[name] = function (...args) {
      note(this, args);
      return own[i].apply(this, args);
    };
  });
  try {
    await work();
  } finally {
    watched.forEach(([type, name], i) => (type.prototype[name] = own[i]));
  }
  return counts;
}
