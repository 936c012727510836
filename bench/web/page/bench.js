// One page, one run: every participant computes the same cases on the same inputs, in turns. See docs/performance.md.

import { counted } from './counts.js';
import { cases, values } from './cases.js';

/** The device that was opened last. */
let opened;
const requestDevice = GPUAdapter.prototype.requestDevice;
GPUAdapter.prototype.requestDevice = async function (descriptor) {
  opened = await requestDevice.call(this, descriptor);
  opened.addEventListener('uncapturederror', ({ error }) => console.error(error.message));
  return opened;
};

const participants = [];

/** Opens a participant by its module, and says what it is. Some open their device only when they first need it. */
async function open(key) {
  opened = undefined;
  const participant = await (await import(`./${key}.js`)).open();
  participants.push(participant);
  participant.queue = opened?.queue;
  return { key, version: participant.version };
}

/** Runs, and waits until the device is done: the same for everyone. Nanoseconds until work was submitted, and done. */
async function run(participant, prepared) {
  const start = performance.now();
  await prepared.run();
  const submitted = performance.now();
  await participant.queue.onSubmittedWorkDone();
  return { host: (submitted - start) * 1e6, done: (performance.now() - start) * 1e6 };
}

/** Where two results differ by more than the tolerance allows, in words. */
function difference(want, got, tolerance) {
  if (want.length !== got.length) return `${got.length} elements, not ${want.length}`;
  const scale = Math.sqrt(want.reduce((sum, value) => sum + value * value, 0) / want.length);
  let [worst, at] = [0, 0];
  for (let i = 0; i < want.length; i += 1) {
    const apart = Math.abs(want[i] - got[i]);
    // A NaN is apart from everything.
    if (!(apart <= worst)) [worst, at] = [apart, i];
    if (Number.isNaN(apart)) break;
  }
  if (worst <= tolerance * scale) return null;
  return `element ${at} is ${got[at]}, not ${want[at]} (root mean square ${scale.toPrecision(3)})`;
}

/** Takes a seat: the first way to compute whose result agrees. What was wrong before it is kept in `passed`. */
async function sit(participant, item, data, want) {
  const seat = { key: participant.key, times: [], host: [], passed: [] };
  try {
    const ways = participant.ways?.(item) ?? 1;
    for (let way = 0; way < ways; way += 1) {
      opened = undefined;
      const prepared = await participant.prepare(item, data, way);
      participant.queue = opened?.queue ?? participant.queue;
      const got = await prepared.values();
      seat.differs = difference(want ?? got, got, item.tolerance);
      await run(participant, prepared);
      if (seat.differs === null) return { participant, prepared, seat, got };
      await prepared.free();
      if (way + 1 < ways) seat.passed.push(seat.differs);
    }
  } catch (error) {
    seat.failed = String(error?.message ?? error);
  }
  return { participant, seat };
}

/** One case: results are compared, what is asked of WebGPU is counted, and then turns are timed. */
async function measure(item, { seconds, most }) {
  const data = item.inputs.map(({ dims }, i) => values(dims, i + 1));
  const all = [];
  for (const participant of participants) all.push(await sit(participant, item, data, all[0]?.got));
  const seats = all.filter(({ prepared }) => prepared !== undefined);
  const outcome = { name: item.name, tolerance: item.tolerance, seats: all.map(({ seat }) => seat) };
  // Without anybody to agree with, a result may be wrong.
  if (participants.length > 1 && seats.length === 1) {
    const [{ prepared, seat }] = seats.splice(0);
    seat.failed = 'nobody else has its result';
    await prepared.free();
  }
  for (const { participant, prepared, seat } of seats) {
    seat.counts = await counted(() => run(participant, prepared));
  }
  const end = performance.now() + seconds * 1000;
  for (let round = 0; round < 5 || (round < most && performance.now() < end); round += 1) {
    for (let turn = 0; turn < seats.length; turn += 1) {
      // Nobody always follows the same one.
      const { participant, prepared, seat } = seats[(turn + round) % seats.length];
      const { host, done } = await run(participant, prepared);
      seat.host.push(host);
      seat.times.push(done);
    }
  }
  for (const { prepared } of seats) await prepared.free();
  return outcome;
}

async function about() {
  const adapter = await navigator.gpu.requestAdapter();
  const { vendor, architecture, device, description } = adapter.info;
  return {
    adapter: [vendor, architecture, device, description].filter((word) => word).join(' '),
    features: [...adapter.features].sort(),
  };
}

window.__bench = { names: cases.map(({ name }) => name), about, open, measure: (at, options) => measure(cases[at], options) };
